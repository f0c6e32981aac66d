//! How records get from one subtask to the next.

pub mod key;
