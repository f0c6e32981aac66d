//! What end-to-end tests stand on.
