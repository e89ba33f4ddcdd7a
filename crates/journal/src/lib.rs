//! Transactions, lanes, commit, checkpoint, recovery; one folder per scheme.
