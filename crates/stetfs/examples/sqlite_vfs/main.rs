//! SQLite with its databases in a volume that is not mounted. Each argument after the image is a
//! statement:
//!
//! ```text
//! cargo run --example sqlite_vfs -- disk.img 'create table t (x)' 'insert into t values (1)' \
//!     'select * from t'
//! ```
//!
//! `store` implements the file operations of SQLite with the library; `vfs` is the border to C.
//! SQLite's journal files work in all modes except WAL, which needs shared memory. If data goes
//! through the volume's journal (here `ldj`), SQLite needs no journal file: a transaction is an
//! atomic group (with a SQLite built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`).

mod store;
mod vfs;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use stetfs::{MountOptions, Volume};

use store::Store;

/// Opens a database in the volume of a registered VFS. To the volume the end of the process is a
/// power cut: deleting the journal file of a transaction must be durable, too, or the transaction
/// is rolled back afterwards (`synchronous=EXTRA`).
fn connect(path: &str, vfs: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let database = Connection::open_with_flags_and_vfs(path, flags, vfs)?;
    database.pragma_update(None, "synchronous", "EXTRA")?;
    Ok(database)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, statements @ ..] = args.as_slice() else {
        return Err("usage: sqlite_vfs IMAGE STATEMENT...".into());
    };
    let volume = Volume::open(Path::new(image), MountOptions::new().journal("ldj"))?;
    let store = Arc::new(Store::new(volume.clone()));
    let registered = vfs::register("stetfs", store)?;
    let database = connect("/database", "stetfs")?;
    for statement in statements {
        let mut prepared = database.prepare(statement)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query([])?;
        while let Some(row) = rows.next()? {
            let values: rusqlite::Result<Vec<Value>> = (0..columns).map(|i| row.get(i)).collect();
            println!("{:?}", values?);
        }
    }
    database.close().map_err(|(_, e)| e)?;
    drop(registered);
    volume.close()?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
