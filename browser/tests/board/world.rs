//! What the parts share: the browser, and the demo while parts need it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::browser::Browser;
use crate::demo::Demo;

/// The browser, and the demo.
pub struct World {
    pub browser: Browser,
    demo: RefCell<Option<Rc<Demo>>>,
    complaints: RefCell<BTreeSet<String>>,
}

impl World {
    pub fn new(browser: Browser) -> World {
        World { browser, demo: RefCell::default(), complaints: RefCell::default() }
    }

    /// The demo, started by the first part that needs it.
    pub async fn demo(&self) -> Rc<Demo> {
        let running = self.demo.borrow().clone();
        if let Some(demo) = running {
            return demo;
        }
        let demo = Rc::new(Demo::start().await);
        *self.demo.borrow_mut() = Some(Rc::clone(&demo));
        demo
    }

    /// The demo for the last part that needs it.
    pub async fn last_of_demo(&self) -> Demo {
        let demo = self.demo().await;
        drop(self.demo.borrow_mut().take());
        Rc::into_inner(demo).expect("only one part at a time uses it")
    }

    /// The complaints of the browser so far, in all parts.
    pub async fn complaints(&self) -> BTreeSet<String> {
        let log = self.browser.complaints().await;
        let mut complaints = self.complaints.borrow_mut();
        // The address at the start differs from page to page.
        complaints
            .extend(log.into_iter().map(|text| text.split_once(' ').map_or(text.clone(), |(_, rest)| rest.to_owned())));
        complaints.clone()
    }

    pub async fn end(&self) {
        drop(self.demo.borrow_mut().take());
        self.browser.quit().await;
    }
}
