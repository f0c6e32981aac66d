//! How elements get from subtask to subtask: routes, channels, gates.
//!
//! Owns order, room and alignment between subtasks. Does not own what a subtask does with what it gets.

pub mod channel;
pub mod gate;
pub mod key;
pub mod route;
