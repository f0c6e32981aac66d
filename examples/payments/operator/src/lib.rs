//! Payments joined with their orders: each payment within an hour of its order, whichever comes first.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasmill_guest::join::{Between, IntervalJoin};
use wasmill_guest::prelude::*;

/// A payment's time is that of its order, or up to an hour behind it.
const WITHIN_AN_HOUR: Between = Between::millis(0, 3_600_000);
/// Inputs in the order in which they are declared.
const ORDERS: u16 = 0;

/// The operator. Both inputs are keyed by the order's number.
#[derive(Operator)]
#[operator(key = String, input("orders"), input("payments"), output("paid"), output("late"), timers)]
pub struct Payments {
    join: IntervalJoin<Order, Payment>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Order {
    order: String,
    customer: String,
    at: String,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Payment {
    cents: u64,
    at: String,
}

#[derive(Serialize)]
struct Paid<'a> {
    order: &'a str,
    customer: &'a str,
    cents: u64,
    ordered: &'a str,
    paid: &'a str,
}

impl Process for Payments {
    fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result {
        let pair = |ctx: &mut Context<'_>, order: &Order, payment: &Payment| {
            let Order { order, customer, at: ordered } = order;
            ctx.emit(&Paid { order, customer, cents: payment.cents, ordered, paid: &payment.at })
        };
        let arrival = match record.input() {
            ORDERS => self.join.left(ctx, WITHIN_AN_HOUR, record.value()?, pair)?,
            _ => self.join.right(ctx, WITHIN_AN_HOUR, record.value()?, pair)?,
        };
        if arrival.is_late() { ctx.to("late").forward(&record) } else { Ok(()) }
    }
}

impl OnTimer for Payments {
    fn fire(&mut self, timer: Timer<'_>, ctx: &mut Context<'_>) -> Result {
        self.join.fire(ctx, WITHIN_AN_HOUR, &timer)
    }
}

operator!(Payments);
