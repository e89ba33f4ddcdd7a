//! File data on volumes in memory: against models, in parallel, out of space, with failing devices.
mod age;
mod clusters;
mod crashes;
mod damage;
mod errors;
mod faults;
mod model;
mod nvm;
mod parallel;
mod reading;
mod records;
mod region;
mod rules;
mod shapes;
mod unheld;
mod volume;
