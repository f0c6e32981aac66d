//! Tests of the file sink.
