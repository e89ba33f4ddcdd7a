//! Workloads, peers, figures.
