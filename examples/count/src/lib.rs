//! Counts the records of each key and emits the count with every record.
//!
//! The smallest stateful operator there is; the benches run it as a component and natively.

use serde::Serialize;
use wasmill_guest::prelude::*;

/// The operator.
#[derive(Operator)]
#[operator(key = String)]
pub struct CountPerKey {
    count: Value<u64>,
}

#[derive(Serialize)]
struct Total<'a> {
    key: &'a str,
    count: u64,
}

impl Process for CountPerKey {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let count = self.count.get(ctx)?.unwrap_or(0) + 1;
        self.count.set(ctx, count)?;
        ctx.emit(&Total { key: record.key()?, count })
    }
}

operator!(CountPerKey);

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use wasmill_guest::testing::{Harness, Input};

    use super::*;

    #[derive(Deserialize)]
    struct Seen {
        count: u64,
    }

    #[test]
    fn every_record_brings_its_keys_count() {
        for size in [1, 2, 1024] {
            let mut test = Harness::<CountPerKey>::new("{}").unwrap().batches_of(size);
            let emits = test.process(["a", "b", "a", "a"].map(|key| Input::absent().key(key))).unwrap();
            let counts: Vec<u64> = emits.iter().map(|emit| emit.value::<Seen>().unwrap().count).collect();
            assert_eq!(counts, [1, 1, 2, 3]);
            assert_eq!(test.state::<u64>("count", "a").unwrap(), Some(3));
        }
    }

    #[test]
    fn a_record_without_a_key_is_rejected() {
        let mut test = Harness::<CountPerKey>::new("{}").unwrap();
        assert_eq!(test.process([Input::absent()]).unwrap(), []);
        assert_eq!(test.rejects()[0].reason, "the record has no key");
        assert_eq!(test.state_len("count").unwrap(), 0);
    }
}
