//! Whole volumes: exchange with the kernel in both directions, and sizes.
mod damage;
mod external;
mod faults;
mod inline;
mod mmp;
mod orphans;
mod reads;
mod sealed;
mod sizes;
mod times;
