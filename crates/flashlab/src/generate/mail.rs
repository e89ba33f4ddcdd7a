//! A mail store with a file for each message. A delivery takes the first gap that is large enough,
//! or goes behind the last message. New messages are read most often; old and new ones are deleted.
//! Each delivery or deletion changes inode, directory, bitmap and an index.

use std::collections::VecDeque;

use super::maker::Maker;

const MAILBOXES: u64 = 64;

/// Pages of the bitmap, the inodes, the directory and the index of a mailbox.
const METADATA: [u64; 4] = [1, 64, 8, 24];

struct Message {
    at: u64,
    pages: u64,
}

struct Mailbox {
    first: u64,
    /// The end of the space for messages.
    end: u64,
    /// The page behind the last message.
    next: u64,
    /// The messages, the oldest first.
    messages: VecDeque<Message>,
    gaps: Vec<Message>,
}

impl Mailbox {
    fn new(first: u64, end: u64) -> Mailbox {
        Mailbox {
            first,
            end,
            next: first + METADATA.iter().sum::<u64>(),
            messages: VecDeque::new(),
            gaps: Vec::new(),
        }
    }

    /// Changes the metadata for a new or deleted message.
    fn change_metadata(&self, m: &mut Maker) {
        let mut first = self.first;
        for pages in METADATA {
            let page = m.skewed(first..first + pages, 2.0);
            m.write(page, 1);
            first += pages;
        }
    }

    /// Space for a message; `None` if the mailbox is full.
    fn place(&mut self, pages: u64) -> Option<u64> {
        if let Some(i) = self.gaps.iter().position(|gap| gap.pages >= pages) {
            let gap = &mut self.gaps[i];
            let at = gap.at;
            gap.at += pages;
            gap.pages -= pages;
            if gap.pages == 0 {
                self.gaps.swap_remove(i);
            }
            return Some(at);
        }
        let at = self.next;
        (at + pages <= self.end).then(|| {
            self.next += pages;
            at
        })
    }

    fn deliver(&mut self, m: &mut Maker) {
        // Lengths are 1 to 64 pages, nine on average.
        let pages = m.skewed(1..65, 6.0);
        let at = loop {
            match self.place(pages) {
                Some(at) => break at,
                None if self.messages.is_empty() => return,
                None => self.delete(m, 0),
            }
        };
        m.write(at, pages);
        self.messages.push_back(Message { at, pages });
        self.change_metadata(m);
    }

    fn delete(&mut self, m: &mut Maker, which: usize) {
        if let Some(gap) = self.messages.remove(which) {
            self.gaps.push(gap);
            self.change_metadata(m);
        }
    }

    /// Reads the index and a message, most often a young one.
    fn read(&self, m: &mut Maker) {
        let index = self.first + METADATA[..3].iter().sum::<u64>();
        m.read(index, METADATA[3]);
        let back = m.skewed(0..self.messages.len() as u64 + 1, 3.0) as usize;
        if let Some(message) = self.messages.iter().rev().nth(back) {
            m.read(message.at, message.pages);
        }
    }
}

pub(super) fn make(m: &mut Maker) {
    let width = m.range / MAILBOXES;
    let mut boxes: Vec<Mailbox> = (0..MAILBOXES)
        .map(|i| Mailbox::new(i * width, (i + 1) * width))
        .collect();
    while !m.is_done() {
        let which = m.skewed(0..MAILBOXES, 1.5) as usize;
        let Some(mailbox) = boxes.get_mut(which) else {
            continue;
        };
        if m.reads() {
            mailbox.read(m);
            continue;
        }
        mailbox.deliver(m);
        if m.chance(0.4) {
            let count = mailbox.messages.len() as u64;
            let old = m.skewed(0..count.max(1), 1.0) as usize;
            mailbox.delete(m, old);
        }
    }
}
