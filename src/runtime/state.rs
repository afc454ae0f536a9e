//! The values that an App shares with its handlers, and which of them the handlers need.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::config_error::ConfigError;
use crate::error::job_error::MissingState;

/// A type whose value a handler needs from the App.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    id: TypeId,
    name: &'static str,
}

impl Need {
    pub(crate) fn of<T: 'static>() -> Need {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

/// The values that an App shares with its handlers, one for each type.
#[derive(Clone, Default)]
pub(crate) struct Data(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Data {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Result<&T, MissingState> {
        let value = self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.ok_or(MissingState { type_name: type_name::<T>() })
    }

    /// A fault for each missing value that a task needs.
    pub(crate) fn faults(&self, task: &str, needs: &[Need]) -> impl Iterator<Item = ConfigError> {
        needs.iter().filter(|need| !self.0.contains_key(&need.id)).map(move |need| {
            let rule = format!("must be provided, since the task {task} needs it");
            ConfigError::new(format!("data of the type {}", need.name), "missing", rule, "pass it to AppBuilder::state")
        })
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data").field("types", &self.0.len()).finish()
    }
}
