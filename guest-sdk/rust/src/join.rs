//! Joins of two inputs.
//!
//! Owns what is kept of each side, for as long as a record that is not late can still meet it. Does not own how pairs are
//! made into output.

mod interval;
#[cfg(test)]
mod tests;
mod window;

pub use interval::{Between, IntervalJoin};
pub use window::WindowJoin;
