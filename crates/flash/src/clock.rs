//! The clock of a device model: computes when requests complete. Times are nanoseconds since some
//! start.

use std::collections::BTreeMap;

use crate::model::Model;

/// Bytes of a page: the unit of costs.
pub(crate) const PAGE: u64 = 4096;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reading.
    Read,
    /// Writing, into the cache.
    Write,
    /// Writing, onto the medium.
    WriteThrough,
}

/// A request as the clock sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its kind.
    pub kind: Kind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Additional work of the medium in nanoseconds: the moves and erasures that make space.
    pub extra: u64,
}

/// A device of some model, with its state at some time.
pub struct Clock {
    model: Model,
    /// Size of the device in bytes, for the distance of seeks.
    size: u64,
    /// Time at which each channel is free.
    channels: Vec<u64>,
    /// Time at which the interface is free.
    interface: u64,
    /// The extents in the cache: offset and length. Only for models with heads; for others only the
    /// number of bytes counts.
    cached: BTreeMap<u64, u64>,
    bytes: u64,
    /// Additional work of the medium that is still to be done, in nanoseconds.
    extra: u64,
    /// Time at which the medium has completed its work.
    medium: u64,
    /// Position of the head in bytes.
    head: u64,
}

impl Clock {
    /// An idle device of `size` bytes.
    pub fn new(model: Model, size: u64) -> Clock {
        Clock {
            model,
            size: size.max(1),
            channels: vec![0; model.channels.max(1)],
            interface: 0,
            cached: BTreeMap::new(),
            bytes: 0,
            extra: 0,
            medium: 0,
            head: 0,
        }
    }

    /// The completion time of requests that arrive together at `now`.
    pub fn run(&mut self, now: u64, requests: impl IntoIterator<Item = Request>) -> u64 {
        self.drain(now);
        requests
            .into_iter()
            .map(|request| self.one(now, request))
            .fold(now, u64::max)
    }

    /// The completion time of a flush that arrives at `now`.
    pub fn flush(&mut self, now: u64) -> u64 {
        self.drain(now);
        // The flush covers the requests acknowledged before it; requests under way may wait behind
        // it.
        let idle = self.empty(now);
        let done = idle + self.model.flush;
        self.medium = done;
        done
    }

    /// Number of bytes in the cache.
    pub fn cached(&self) -> u64 {
        self.bytes
    }

    fn one(&mut self, now: u64, request: Request) -> u64 {
        let pages = request.len.div_ceil(PAGE);
        let cost = match request.kind {
            Kind::Read => self.model.read,
            Kind::Write | Kind::WriteThrough => self.model.write,
        };
        let Some(channel) = self.channels.iter_mut().min() else {
            return now;
        };
        // Channels work in parallel, and share the interface.
        let ready = now.max(*channel) + cost.setup;
        let mut done = ready.max(self.interface) + pages * cost.per_page;
        self.interface = done;
        *channel = done;
        match request.kind {
            Kind::Read => {
                if self.model.seek.is_some() {
                    let begin = done.max(self.medium);
                    let arrived = begin + self.way(begin, request.offset);
                    self.medium = arrived + pages * self.model.program;
                    self.head = request.offset + request.len;
                    done = self.medium;
                }
            }
            Kind::Write => {
                while self.bytes > 0 && self.bytes + request.len > self.model.cache {
                    done = self.step(done.max(self.medium)).max(done);
                }
                self.cache(request);
            }
            Kind::WriteThrough => {
                self.cache(request);
                done = self.empty(done);
            }
        }
        done
    }

    fn cache(&mut self, request: Request) {
        self.extra += request.extra;
        self.bytes += request.len;
        if self.model.seek.is_none() {
            return;
        }
        // Adjacent extents are merged, because the head passes over them in one movement.
        let mut first = request.offset;
        let mut end = request.offset + request.len;
        if let Some((start, len)) = self
            .cached
            .range(..=first)
            .next_back()
            .map(|(s, l)| (*s, *l))
            && start + len >= first
        {
            self.cached.remove(&start);
            first = start;
            end = end.max(start + len);
        }
        while let Some((start, len)) = self.cached.range(first..=end).next().map(|(s, l)| (*s, *l))
        {
            self.cached.remove(&start);
            end = end.max(start + len);
        }
        self.cached.insert(first, end - first);
        self.bytes = self.cached.values().sum();
    }

    /// Time in nanoseconds, from `begin` on, until the head is at `offset`: a seek to another
    /// track, and the rest of the rotation.
    fn way(&self, begin: u64, offset: u64) -> u64 {
        let Some(seek) = self.model.seek else {
            return 0;
        };
        let rotation = seek.rotation.max(1);
        let turned = |bytes: u64| bytes.div_ceil(PAGE) * self.model.program;
        let track = |bytes: u64| turned(bytes) / rotation;
        // The end of a track is followed by the begin of the next one without a seek.
        let moves = if offset == self.head || track(offset) == track(self.head) {
            0
        } else {
            let distance = offset.abs_diff(self.head);
            let part = (distance as f64 / self.size as f64).min(1.0).sqrt();
            seek.short + (seek.full.saturating_sub(seek.short) as f64 * part) as u64
        };
        let angle = (begin + moves) % rotation;
        moves + (turned(offset) % rotation + rotation - angle) % rotation
    }

    /// One step of the medium from `begin` on: one extent, or the whole cache without heads. Gives
    /// its end.
    fn step(&mut self, begin: u64) -> u64 {
        if self.model.seek.is_none() {
            let pages = self.bytes.div_ceil(PAGE);
            self.bytes = 0;
            let extra = std::mem::take(&mut self.extra);
            self.medium = begin + extra + pages * self.model.program;
            return self.medium;
        }
        // As an elevator: onwards from the head, and at the end from the beginning.
        let next = self
            .cached
            .range(self.head..)
            .next()
            .or_else(|| self.cached.iter().next())
            .map(|(s, l)| (*s, *l));
        let Some((start, len)) = next else {
            return begin;
        };
        self.cached.remove(&start);
        self.medium = begin + self.way(begin, start) + len.div_ceil(PAGE) * self.model.program;
        self.head = start + len;
        self.bytes = self.bytes.saturating_sub(len);
        self.medium
    }

    /// Writes the whole cache to the medium. Gives the end.
    fn empty(&mut self, now: u64) -> u64 {
        let mut done = now.max(self.medium);
        while self.bytes > 0 || self.extra > 0 && self.model.seek.is_none() {
            done = self.step(done);
        }
        done
    }

    /// Does the background work of the medium until `now`.
    fn drain(&mut self, now: u64) {
        if self.model.seek.is_none() {
            let mut idle = now.saturating_sub(self.medium);
            // Space is made first.
            let extra = self.extra.min(idle);
            self.extra -= extra;
            idle -= extra;
            let done = (idle / self.model.program.max(1)).saturating_mul(PAGE);
            self.bytes = self.bytes.saturating_sub(done);
            self.medium = self.medium.max(now);
            return;
        }
        while self.bytes > 0 && self.medium < now {
            self.step(self.medium);
        }
        if self.bytes == 0 {
            self.medium = self.medium.max(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const MS: u64 = 1_000_000;

    fn model(name: &str) -> Clock {
        let model: Model = name.parse().unwrap_or(Model::ALL[0]);
        assert_eq!(model.name, name);
        Clock::new(model, 100 << 30)
    }

    fn write(offset: u64, len: u64) -> Request {
        Request {
            kind: Kind::Write,
            offset,
            len,
            extra: 0,
        }
    }

    fn read(offset: u64, len: u64) -> Request {
        Request {
            kind: Kind::Read,
            offset,
            len,
            extra: 0,
        }
    }

    /// The rate of a stream of requests of 1 MiB, in bytes a second.
    fn stream(clock: &mut Clock, kind: Kind, depth: u64) -> f64 {
        let mut now = 0;
        for i in 0..200 {
            let all = (0..depth).map(|j| Request {
                kind,
                offset: (i * depth + j) << 20,
                len: 1 << 20,
                extra: 0,
            });
            now = clock.run(now, all);
        }
        (200 * depth) as f64 * f64::from(1 << 20) / now as f64 * 1e9
    }

    #[test]
    fn rates_are_those_of_the_data_sheets() {
        for (name, reads, writes) in [("sata-ssd", 550e6, 520e6), ("nvme-ssd", 3.5e9, 2.1e9)] {
            for (kind, rate) in [(Kind::Read, reads), (Kind::Write, writes)] {
                let is = stream(&mut model(name), kind, 4);
                assert!(
                    (0.7..1.15).contains(&(is / rate)),
                    "{name} {kind:?}: {is:e}"
                );
            }
        }
        let disk = stream(&mut model("disk"), Kind::Write, 4);
        assert!((150e6..300e6).contains(&disk), "{disk:e}");
    }

    #[test]
    fn small_requests_pay_for_themselves() {
        let mut ssd = model("sata-ssd");
        assert!((20 * US..40 * US).contains(&ssd.run(0, [write(0, 4096)])));
        let many = ssd.run(MS, (0..32).map(|i| read(i << 20, 4096))) - MS;
        assert!(many < 32 * 92 * US / 5, "{many}: channels work at once");
    }

    #[test]
    fn a_flush_waits_for_what_is_cached() {
        let mut ssd = model("sata-ssd");
        let idle = ssd.flush(0);
        assert!((900 * US..1000 * US).contains(&idle));
        let written = ssd.run(idle, [write(0, 64 << 20)]);
        let full = ssd.flush(written) - written;
        assert!(full > 20 * MS || ssd.cached() == 0, "{full}");
        // An idle cache is written out by itself.
        let written = ssd.run(MS * 1000, [write(0, 64 << 20)]);
        assert!(ssd.flush(written + 1000 * MS) - written - 1000 * MS < MS);
    }

    #[test]
    fn a_disk_moves_its_head() {
        let mut disk = model("disk");
        let near = disk.run(0, [read(0, 4096)]);
        let far = disk.run(near, [read(90 << 30, 4096)]) - near;
        assert!((10 * MS..25 * MS).contains(&far), "{far}");
        // Random writes go to the cache; the flush sorts and writes them.
        let now = 1000 * MS;
        let done = disk.run(now, (0..64).map(|i| write((i * 37 % 64) << 30, 4096)));
        assert!(done - now < 10 * MS, "{}", done - now);
        let sorted = disk.flush(done) - done;
        assert!((200 * MS..640 * MS).contains(&sorted), "{sorted}");
        // A log with a sync after each write takes a rotation for each.
        let mut now = 3000 * MS;
        for i in 0..20 {
            let done = disk.run(now, [write((20 << 30) + i * 4096, 4096)]);
            now = disk.flush(done);
        }
        let each = (now - 3000 * MS) / 20;
        assert!((7 * MS..10 * MS).contains(&each), "{each}");
        // A place that is overwritten each time takes a rotation for each write, too.
        let mut now = 4000 * MS;
        for _ in 0..20 {
            let done = disk.run(now, [write(20 << 30, 8192)]);
            now = disk.flush(done);
        }
        let each = (now - 4000 * MS) / 20;
        assert!((7 * MS..10 * MS).contains(&each), "{each}");
        // Sequential writes take one seek.
        let now = 5000 * MS;
        let done = disk.run(now, (0..64).map(|i| write((50 << 30) + i * 4096, 4096)));
        let row = disk.flush(done) - done;
        assert!(row < 30 * MS, "{row}");
    }

    #[test]
    fn what_is_moved_keeps_the_cache_full() {
        let moves = Request {
            extra: 50 * MS,
            ..write(0, 4096)
        };
        // A flush waits for the additional work; an idle device does it by itself.
        let mut ssd = model("sata-ssd");
        let done = ssd.run(0, [moves]);
        assert!(done < MS);
        assert!((50 * MS..53 * MS).contains(&ssd.flush(done)));
        let mut ssd = model("sata-ssd");
        ssd.run(0, [moves]);
        assert!(ssd.flush(60 * MS) < 62 * MS);
        // A stream of writes waits as soon as the cache is full.
        let stream = |extra| {
            let mut ssd = model("sata-ssd");
            let one = |i: u64| Request {
                extra,
                ..write(i << 20, 1 << 20)
            };
            (0..1024).fold(0, |now, i: u64| ssd.run(now, [one(i)]))
        };
        let (plain, moving) = (stream(0), stream(2 * MS));
        assert!(moving > plain + 1024 * 2 * MS * 7 / 10, "{plain}, {moving}");
    }

    #[test]
    fn a_full_cache_makes_writers_wait() {
        let mut disk = model("disk");
        let mut now = 0;
        for i in 0..64 {
            now = disk.run(now, [write(i << 20, 1 << 20)]);
        }
        let fast = now;
        for i in 64..512 {
            now = disk.run(now, [write(i << 20, 1 << 20)]);
        }
        assert!((now - fast) / 7 > fast, "{fast} then {now}");
        assert!(disk.cached() <= 64 << 20);
    }
}
