//! The join, by hand.
//!
//! Owns no helper that others use.

use wasmill_guest::testing::{Harness, Input};

use super::*;

#[derive(Deserialize)]
struct Seen {
    cents: u64,
}

fn order(minute: i64) -> Input {
    let order = Order { order: "o-1".to_owned(), customer: "ada".to_owned(), at: minute.to_string() };
    Input::new(&order).key("o-1").at(at(minute)).on(ORDERS)
}

fn payment(minute: i64, cents: u64) -> Input {
    Input::new(&Payment { cents, at: minute.to_string() }).key("o-1").at(at(minute)).on(1)
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(minute * 60_000)
}

#[test]
fn a_payment_meets_its_order_up_to_an_hour_behind_it_whichever_comes_first() {
    for size in [1, 2, 1024] {
        let mut test = Harness::<Payments>::new("{}").unwrap().batches_of(size);
        let records = [payment(0, 1), payment(-1, 2), order(0), payment(60, 3), payment(61, 4)];
        let emits = test.process(records).unwrap();
        let cents: Vec<u64> = emits.iter().map(|emit| emit.value::<Seen>().unwrap().cents).collect();
        assert_eq!(cents, [1, 3]);
        test.advance_watermark(at(61)).unwrap();
        for state in ["join.left", "join.right", "join.queue"] {
            assert_eq!(test.row_count(state).unwrap(), 0, "{state} is kept no longer than it can meet another");
        }
        assert_eq!(test.process([payment(60, 5)]).unwrap()[0].output, "late");
    }
}
