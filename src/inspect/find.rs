//! Finds what has a name or an id: tasks, jobs, workers, workflows, instances and schedules.

use serde::Serialize;

use super::Inspector;
use super::parts::config;
use crate::backend::workflow::instances;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::instance::WorkflowState;
use crate::job::state::JobState;
use crate::join::join_all;
use crate::worker_id::WorkerId;

/// How many tasks or workflows are searched at a time.
const TOGETHER: usize = 50;

/// The most tasks that are searched for a job or a schedule. Not more workflows are listed.
const SEARCHED: usize = 1000;

/// The most workers whose ids are compared: live, silent and gone ones.
const WORKERS: [usize; 3] = [5000, 1000, 1000];

/// The most names of an answer.
const MOST: usize = 50;

/// The most bytes of a name or an id.
const TEXT: usize = 512;

/// Something that has a name or an id. As JSON, `kind` says what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Match {
    /// A task.
    Task {
        /// Its name.
        task: String,
    },
    /// A job.
    Job {
        /// Its task.
        task: String,
        /// Its id.
        id: JobId,
        /// Its state.
        state: JobState,
    },
    /// A worker.
    Worker {
        /// Its id.
        worker: WorkerId,
    },
    /// A workflow.
    Workflow {
        /// Its name.
        workflow: String,
    },
    /// An instance of a workflow.
    Instance {
        /// The workflow.
        workflow: String,
        /// Its id.
        id: String,
        /// Its state.
        state: WorkflowState,
    },
    /// A schedule.
    Schedule {
        /// Its task.
        task: String,
        /// Its name.
        name: String,
    },
}

/// What [`Inspector::find`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FindReport {
    /// Everything that has the name or the id. If nothing has it, the tasks, workers and workflows whose names contain it; at most 50.
    pub matches: Vec<Match>,
    /// Whether something has exactly this name or id.
    pub is_exact: bool,
    /// The lists, tasks and workflows that could not be searched, and why; about 20 of them by name. If there are more than 1,000 tasks, the last entry says how many were left out.
    pub unread: Vec<String>,
}

/// The most tasks and workflows that are named because they could not be read.
const UNREAD: usize = 20;

/// The names of everything that is listed.
struct ListedNames {
    tasks: Vec<String>,
    workers: Vec<String>,
    workflows: Vec<String>,
    /// The lists that could not be read, and why.
    unread: Vec<String>,
}

impl Inspector {
    /// Everything that has this name or id: a task, a job of any task, a worker, a workflow, an instance or a schedule. If nothing has it,
    /// the tasks, workers and workflows whose names contain it, in any case of letters.
    ///
    /// It makes two small calls per task and one per workflow, for at most 1,000 of each, and reads no payload. Its cost does not depend
    /// on the number of jobs.
    ///
    /// # Errors
    /// [`Error::Config`] if the text is empty or longer than 512 bytes.
    pub async fn find(&self, text: &str) -> Result<FindReport, Error> {
        let text = text.trim();
        if text.is_empty() || text.len() > TEXT {
            let rule = format!("must have 1 to {TEXT} bytes");
            return Err(config("text", text, &rule, "pass the name or the id of one thing"));
        }
        let names = self.names().await?;
        let has = |all: &[String]| all.iter().any(|name| name == text);
        let mut report = FindReport { matches: Vec::new(), is_exact: true, unread: names.unread.clone() };
        report.matches.extend(has(&names.tasks).then(|| Match::Task { task: text.to_owned() }));
        report.matches.extend(has(&names.workers).then(|| Match::Worker { worker: WorkerId::from_wire(text) }));
        report.matches.extend(has(&names.workflows).then(|| Match::Workflow { workflow: text.to_owned() }));
        for some in names.tasks.chunks(TOGETHER).take(SEARCHED / TOGETHER) {
            let reads = join_all(some.iter().map(|task| self.of_task(task, text))).await;
            self.add(&mut report, some, reads)?;
        }
        for some in names.workflows.chunks(TOGETHER) {
            let reads = join_all(some.iter().map(|workflow| self.of_workflow(workflow, text))).await;
            self.add(&mut report, some, reads)?;
        }
        // A node that is away may have the most of them.
        let (most, more) = (names.unread.len() + UNREAD, report.unread.len());
        report.unread.truncate(most);
        if more > most {
            report.unread.push(format!("and {} more", more - most));
        }
        if names.tasks.len() > SEARCHED {
            report.unread.push(format!("{} more tasks", names.tasks.len() - SEARCHED));
        }
        if report.matches.is_empty() {
            report.is_exact = false;
            report.matches = names.containing(text);
        }
        Ok(report)
    }

    /// Adds what was found of each of these, or why it could not be read.
    fn add(
        &self,
        report: &mut FindReport,
        names: &[String],
        reads: Vec<Result<Vec<Match>, Error>>,
    ) -> Result<(), Error> {
        for (name, read) in names.iter().zip(reads) {
            match read {
                Ok(found) => report.matches.extend(found),
                Err(e) if self.hides_all(&e) => return Err(e),
                Err(e) => report.unread.push(format!("{name}: {}", e.chain())),
            }
        }
        Ok(())
    }

    async fn names(&self) -> Result<ListedNames, Error> {
        let now = self.now_ms().await?;
        let tasks = self.task_names().await?;
        let workers = self.look(async |conn| self.store.workers(conn, now, WORKERS).await).await;
        let workflows = self.look(async |conn| self.store.workflows(conn).await).await;
        let mut unread = Vec::new();
        let mut listed = |list: &str, read: Result<Vec<(String, u64)>, Error>| match read {
            Ok(all) => Ok(all.into_iter().map(|(name, _)| name).collect()),
            Err(e) if self.hides_all(&e) => Err(e),
            Err(e) => {
                unread.push(format!("the list of {list}: {}", e.chain()));
                Ok(Vec::new())
            }
        };
        let (workers, workflows) = (listed("workers", workers)?, listed("workflows", workflows)?);
        Ok(ListedNames { tasks, workers, workflows, unread })
    }

    /// The job and the schedule of a task with this id or name. A text that is not a valid one names none.
    async fn of_task(&self, task: &str, text: &str) -> Result<Vec<Match>, Error> {
        let mut found = Vec::new();
        if let Ok(id) = JobId::parse(text) {
            let states = self.states_of(task, std::slice::from_ref(&id)).await?;
            let state = states.into_iter().flatten().next();
            found.extend(state.map(|(state, _)| Match::Job { task: task.to_owned(), id, state }));
        }
        #[cfg(feature = "schedules")]
        match self.schedule(task, text).await {
            Ok(schedule) => {
                found.extend(schedule.map(|info| Match::Schedule { task: task.to_owned(), name: info.name }));
            }
            Err(Error::Config(_)) => {}
            Err(e) => return Err(e),
        }
        Ok(found)
    }

    async fn of_workflow(&self, workflow: &str, id: &str) -> Result<Vec<Match>, Error> {
        let keys = &self.store.workflow(workflow);
        let state = self.look(async |conn| instances::state(conn, keys, id).await).await?;
        let instance = |state| Match::Instance { workflow: workflow.to_owned(), id: id.to_owned(), state };
        Ok(state.map(|state| instance(state.place)).into_iter().collect())
    }
}

impl ListedNames {
    /// The names that contain a text, in any case of letters.
    fn containing(self, text: &str) -> Vec<Match> {
        let text = text.to_lowercase();
        let contains = |name: &String| name.to_lowercase().contains(&text);
        let tasks = self.tasks.into_iter().filter(contains).map(|task| Match::Task { task });
        let workers = self.workers.into_iter().filter(contains);
        let workers = workers.map(|worker| Match::Worker { worker: WorkerId::from_wire(&worker) });
        let workflows = self.workflows.into_iter().filter(contains).map(|workflow| Match::Workflow { workflow });
        tasks.chain(workflows).chain(workers).take(MOST).collect()
    }
}
