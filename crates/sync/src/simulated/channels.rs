//! Channels: a queue under a mutex, and a signal for each side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::instant::Instant;
use super::locks::{Condvar, Mutex};

/// As `crossbeam_channel`.
pub mod channel {
    pub use super::{Receiver, Sender, bounded, unbounded};
    pub use crossbeam_channel::{
        RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
    };
}

/// As `std::sync::mpsc`.
pub mod mpsc {
    pub use super::channel::{
        Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, TrySendError,
    };
    pub use super::{Sender as SyncSender, bounded as sync_channel, unbounded as channel};
}

use channel::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

struct Queue<T> {
    items: VecDeque<T>,
    senders: usize,
    receivers: usize,
    /// Items that were ever taken: a sender to a channel without room waits for its own.
    taken: u64,
    sent: u64,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Most items; none: no limit.
    room: Option<usize>,
    filled: Condvar,
    emptied: Condvar,
}

/// The side that sends.
pub struct Sender<T>(Arc<Shared<T>>);

/// The side that receives.
pub struct Receiver<T>(Arc<Shared<T>>);

fn with_room<T>(room: Option<usize>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            items: VecDeque::new(),
            senders: 1,
            receivers: 1,
            taken: 0,
            sent: 0,
        }),
        room,
        filled: Condvar::new(),
        emptied: Condvar::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

/// A channel without a limit.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    with_room(None)
}

/// A channel of at most `room` items. Without room a sender waits until its item is taken.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    with_room(Some(room))
}

impl<T> Sender<T> {
    /// Sends, when there is room.
    ///
    /// # Errors
    /// The item, if no receiver is left.
    #[track_caller]
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.0;
        let mut queue = shared.queue.lock();
        let room = shared.room.map(|room| room.max(1));
        while room.is_some_and(|room| queue.items.len() >= room) && queue.receivers > 0 {
            shared.emptied.wait(&mut queue);
        }
        if queue.receivers == 0 {
            return Err(SendError(item));
        }
        queue.items.push_back(item);
        queue.sent += 1;
        let mine = queue.sent;
        shared.filled.notify_one();
        while shared.room == Some(0) && queue.taken < mine && queue.receivers > 0 {
            shared.emptied.wait(&mut queue);
        }
        Ok(())
    }

    /// Sends if there is room.
    ///
    /// # Errors
    /// The item, if there is none, or no receiver is left.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let shared = &*self.0;
        let mut queue = shared.queue.lock();
        if queue.receivers == 0 {
            return Err(TrySendError::Disconnected(item));
        }
        if shared.room.is_some_and(|room| queue.items.len() >= room) {
            return Err(TrySendError::Full(item));
        }
        queue.items.push_back(item);
        queue.sent += 1;
        shared.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes an item, waiting at most until a moment.
    #[track_caller]
    fn within(&self, until: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let shared = &*self.0;
        let mut queue = shared.queue.lock();
        loop {
            if let Some(item) = queue.items.pop_front() {
                queue.taken += 1;
                if shared.room.is_some() {
                    shared.emptied.notify_all();
                }
                return Ok(item);
            }
            if queue.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            match until {
                None => shared.filled.wait(&mut queue),
                Some(until) => {
                    if shared.filled.wait_until(&mut queue, until).timed_out()
                        && queue.items.is_empty()
                    {
                        return Err(RecvTimeoutError::Timeout);
                    }
                }
            }
        }
    }

    /// Waits for an item.
    ///
    /// # Errors
    /// If there is none and no sender is left.
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.within(None).map_err(|_| RecvError)
    }

    /// Waits for an item, at most for `limit`.
    ///
    /// # Errors
    /// If none came, or no sender is left.
    #[track_caller]
    pub fn recv_timeout(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
        self.within(Some(Instant::now() + limit))
    }

    /// Takes an item if there is one.
    ///
    /// # Errors
    /// If there is none.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let shared = &*self.0;
        let mut queue = shared.queue.lock();
        match queue.items.pop_front() {
            Some(item) => {
                queue.taken += 1;
                if shared.room.is_some() {
                    shared.emptied.notify_all();
                }
                Ok(item)
            }
            None if queue.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Items until no sender is left.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Items that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

/// Items of a receiver until no sender is left.
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.queue.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.0.queue.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.senders -= 1;
        if queue.senders == 0 {
            self.0.filled.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.receivers -= 1;
        if queue.receivers == 0 {
            queue.items.clear();
            self.0.emptied.notify_all();
        }
    }
}
