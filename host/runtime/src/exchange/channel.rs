//! A bounded channel between two subtasks, with a bell at each end.
//!
//! Owns order and the account of what is queued. A send never waits: the sender asks for room before it takes more input, so
//! one call's emits may exceed the bound and a barrier always fits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wasmill_core::element::Element;

use crate::bell::Bell;

/// Elements that a channel queues before it has no room.
const MAX_ELEMENTS: usize = 16;
/// Payload bytes that a channel queues before it has no room.
const MAX_BYTES: usize = 1 << 20;

/// The end that sends.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    receiver: Bell,
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    sender: Bell,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<VecDeque<Element>>,
    elements: AtomicUsize,
    bytes: AtomicUsize,
}

/// A channel whose ends ring `sender` when room is made and `receiver` when an element arrives.
#[must_use]
pub fn channel(sender: Bell, receiver: Bell) -> (Sender, Receiver) {
    let shared = Arc::new(Shared::default());
    (Sender { shared: Arc::clone(&shared), receiver }, Receiver { shared, sender })
}

impl Sender {
    /// Whether the sender may take more input.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Queues the element.
    pub fn send(&self, element: Element) {
        let bytes = payload_bytes(&element);
        let mut queue = self.shared.queue.lock();
        queue.push_back(element);
        self.shared.elements.fetch_add(1, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        drop(queue);
        self.receiver.ring();
    }
}

impl Receiver {
    /// The next element, if there is one.
    pub fn receive(&self) -> Option<Element> {
        if self.shared.elements.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.shared.queue.lock();
        let had_room = self.shared.has_room();
        let element = queue.pop_front()?;
        self.shared.elements.fetch_sub(1, Ordering::Relaxed);
        self.shared.bytes.fetch_sub(payload_bytes(&element), Ordering::Relaxed);
        let made_room = !had_room && self.shared.has_room();
        drop(queue);
        if made_room {
            self.sender.ring();
        }
        Some(element)
    }
}

impl Shared {
    fn has_room(&self) -> bool {
        self.elements.load(Ordering::Relaxed) < MAX_ELEMENTS && self.bytes.load(Ordering::Relaxed) < MAX_BYTES
    }
}

fn payload_bytes(element: &Element) -> usize {
    match element {
        Element::Records(records) | Element::Merged { records, .. } => records.payload_bytes(),
        Element::Barrier(_) | Element::Idle | Element::Active => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmill_core::record::RecordBatch;
    use wasmill_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_full_channel_has_no_room_until_it_is_read_and_then_rings() {
        let bell = Bell::default();
        let (sender, receiver) = channel(bell.clone(), Bell::default());
        while sender.has_room() {
            let mut batch = RecordBatch::default();
            batch.push(None, Timestamp::MIN, Some(&[0; 300_000]));
            sender.send(Element::Records(batch));
        }
        assert!(receiver.receive().is_some());
        bell.wait(Duration::from_secs(3600));
        assert!(sender.has_room());
    }
}
