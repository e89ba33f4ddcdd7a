//! Damage to journals.

use fastrand::Rng;
use stetfs_ondisk::jbd2::block::{read_header, update_tail};
use stetfs_ondisk::jbd2::{BlockType, descriptor};

use super::judge::Dirty;
use super::log::Log;

/// Damages the log; returns a description.
pub fn mutate(log: &mut Log, dirty: &Dirty, rng: &mut Rng) -> String {
    let volume = &dirty.volume;
    let any = *rng.choice(&log.live).unwrap();
    let head = *rng.choice(&log.heads).unwrap();
    let at = if rng.bool() { head } else { any };
    let mut block = log.read(volume, at);
    let size = block.len();
    let done = match rng.u8(0..12) {
        0 | 1 => {
            let byte = match rng.u8(0..3) {
                0 => rng.usize(..64),
                _ => rng.usize(..size),
            };
            block[byte] ^= 1 << rng.u8(0..8);
            format!("a bit of byte {byte} of log block {at} flipped")
        }
        2 => {
            block.fill(0);
            format!("log block {at} zeroed")
        }
        3 => {
            rng.fill(&mut block);
            format!("log block {at} garbled")
        }
        4 => {
            block = log.read(volume, any);
            format!("log block {any} in the place of {at}")
        }
        5 => {
            let from = log.live.iter().position(|b| *b == at).unwrap();
            for gone in &log.live[from..] {
                log.write(volume, *gone, &vec![0; size]);
            }
            block.fill(0);
            format!("log blocks from {at} on zeroed")
        }
        6 => {
            let from = rng.usize(1..size / 512 + 1).min(size / 512 - 1) * 512;
            block[from..].fill(if rng.bool() { 0 } else { 0xaa });
            format!("log block {at} cut to {from} bytes")
        }
        7 => {
            let seq = log.sb.s_sequence.get();
            log.sb.s_sequence = rng
                .choice([seq.wrapping_add(1), seq.wrapping_sub(1)])
                .unwrap()
                .into();
            log.write_superblock(volume);
            return format!("s_sequence {} for {seq}", log.sb.s_sequence.get());
        }
        8 => {
            log.sb.s_start = (head as u32).into();
            if let Some((_, tid)) = read_header(&log.read(volume, head)) {
                log.sb.s_sequence = tid.into();
            }
            log.write_superblock(volume);
            return format!("the log starts at {head}");
        }
        9 => {
            let byte = rng.usize(..256);
            let mut sb = log.read(volume, 0);
            sb[byte] ^= 1 << rng.u8(0..8);
            log.write(volume, 0, &sb);
            return format!("a bit of byte {byte} of the journal's superblock flipped");
        }
        10 => {
            log.sb.s_errno = (-5i32 as u32).into();
            log.write_superblock(volume);
            return "an error in the journal's superblock".into();
        }
        _ => sealed(log, dirty, rng, head, &mut block),
    };
    let at = if done.starts_with("sealed") { head } else { at };
    log.write(volume, at, &block);
    done
}

/// Changes a record, and updates its checksum.
fn sealed(log: &Log, dirty: &Dirty, rng: &mut Rng, at: usize, block: &mut Vec<u8>) -> String {
    *block = log.read(&dirty.volume, at);
    let config = log.config();
    let what = match read_header(block) {
        Some((BlockType::Revoke, _)) => {
            let count = *rng.choice(&[0u32, 12, 15, 17, 5000, u32::MAX]).unwrap();
            block[12..16].copy_from_slice(&count.to_be_bytes());
            format!("r_count {count}")
        }
        Some((BlockType::Descriptor, _)) => {
            let len = descriptor::tag_len(&config);
            let tags = descriptor::decode(&config, block).len();
            let nr = rng.usize(..tags);
            let tag = 12 + nr * len + if nr > 0 { 16 } else { 0 };
            if rng.bool() {
                block[tag + 7] ^= 8;
                format!("the last-tag flag of tag {nr}")
            } else {
                block[tag + 1] ^= 1;
                format!("the home of tag {nr}")
            }
        }
        _ => {
            block[11] ^= 1;
            "the number of the transaction".into()
        }
    };
    if config.csum.in_blocks() {
        update_tail(config.seed, block);
    }
    format!("sealed log block {at}, but changed {what}")
}
