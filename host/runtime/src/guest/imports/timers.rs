//! The import that lists timers.
//!
//! Owns that it is declared, and the columns of a page. Does not own timers ([`StateAccess`](crate::guest::StateAccess) answers).

use wasmill_core::time::Timestamp;
use wasmill_core::timer::{Domain, KeyTimer};
use wasmtime::Result;

use super::{Timers, misuse};
use crate::guest::instance::Data;
use crate::guest::packed;

/// Most timers of one page.
const PAGE: u32 = 16_384;
const IMPORT: &str = "timers-page";

impl Data {
    pub(super) fn page_of_timers(&mut self, origin: u32, after: Option<(u8, i64, u32)>, limit: u32) -> Result<Timers> {
        self.check_origin(IMPORT, origin)?;
        if !self.access.as_ref().is_some_and(|access| access.contract.lists_timers) {
            return Err(misuse(format!(
                "{IMPORT}: the component does not declare that it lists timers (`lists-timers`)"
            )));
        }
        let after = match after {
            Some((domain, time, tag)) => {
                let domain = Domain::from_number(domain).ok_or_else(|| {
                    misuse(format!("{IMPORT}: there is no domain {domain}: 0 is event time, 1 processing time"))
                })?;
                Some(KeyTimer { domain, time: Timestamp::from_millis(time), tag })
            }
            None => None,
        };
        let limit = limit.min(PAGE) as usize;
        // One more tells whether there are more.
        let mut found = self.access(IMPORT)?.timers_page(origin, after, limit + 1)?;
        let more = found.len() > limit;
        found.truncate(limit);
        let mut page = Timers { domains: Vec::new(), times: Vec::new(), tags: Vec::new(), more };
        for KeyTimer { domain, time, tag } in found {
            page.domains.push(domain as u8);
            packed::push_s64(&mut page.times, time.as_millis());
            packed::push_u32(&mut page.tags, tag);
        }
        Ok(page)
    }
}
