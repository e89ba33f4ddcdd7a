//! Quotas in operations: promises to accounts, reports, projects, and the quota files.

mod project;
mod promise;
mod report;
mod store;

pub use report::QuotaUsage;
