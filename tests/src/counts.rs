//! Generated records through the example that counts them, with a checkpoint each 100 ms.

use crate::{Harness, Pipeline};

/// Counts generated records per key, at parallelism 2, with checkpoints in `checkpoints`; results in `out`. The texts go into the source's and
/// into the operator's table.
#[must_use]
pub fn counts(source: &str, operator: &str) -> Pipeline {
    let component = Harness::get().guest("wasmill_example_count");
    Pipeline::new(format!(
        r#"
[job]
name = "counts"

[checkpoint]
interval = "100ms"

[source.numbers]
connector = "generator"
keys = 50
{source}

[operator.count]
component = "{}"
input = {{ from = "numbers", exchange = "key" }}
parallelism = 2
{operator}

[sink.out]
connector = "file"
input = "count"
path = "out"
format = "jsonl"
"#,
        component.display()
    ))
}
