//! What happened, in words.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A log; clones are the same one.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Option<Rc<RefCell<Vec<String>>>>,
}

impl Log {
    pub(crate) fn silent() -> Self {
        Self { lines: None }
    }

    pub(crate) fn recording() -> Self {
        Self {
            lines: Some(Rc::default()),
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn write(&self, nanos: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let time = Duration::from_nanos(nanos);
            lines.borrow_mut().push(format!("{time:>14?}  {}", line()));
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.as_ref();
        lines
            .map(|lines| lines.borrow().clone())
            .unwrap_or_default()
    }

    pub(crate) fn print(&self) {
        for line in self.lines() {
            println!("{line}");
        }
    }
}
