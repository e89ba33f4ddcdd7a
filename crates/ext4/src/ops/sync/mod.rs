//! Durability of operations: on request, or when they return.

mod files;
mod settle;
