//! Tests of the journal on devices in memory: one program, with a module for each subject.

#![allow(clippy::unwrap_used)]

mod apart;
mod common;
mod copies;
mod durable;
mod engine;
mod false_recovery;
mod files;
mod golden;
mod lanes;
mod leader;
mod places;
mod rest;
mod room;
mod rot;
mod share;
mod standing;
mod tail;
mod trim;
