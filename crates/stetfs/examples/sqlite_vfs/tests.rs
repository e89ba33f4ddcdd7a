use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{ErrorCode, TransactionBehavior};
use stetfs_testkit::{Image, Mkfs};

use super::*;

/// Marks the process that runs a test as a child to be killed.
const CHILD: &str = "STETFS_SQLITE_VFS_CHILD";

struct Databases {
    volume: Volume,
    store: Arc<Store>,
    vfs: String,
    _registered: vfs::Registered,
}

impl Databases {
    fn open(image: &Path, journal: &str) -> Databases {
        let volume = Volume::open(image, MountOptions::new().journal(journal)).unwrap();
        let store = Arc::new(Store::new(volume.clone()));
        let vfs = format!("stetfs-{}", fastrand::u64(..));
        Databases {
            _registered: vfs::register(&vfs, Arc::clone(&store)).unwrap(),
            volume,
            store,
            vfs,
        }
    }

    fn connect(&self) -> Connection {
        let database = connect("bank", &self.vfs).unwrap();
        database.busy_timeout(Duration::ZERO).unwrap();
        database
    }

    fn batches(&self) -> u64 {
        self.store.batches.load(Ordering::Relaxed)
    }
}

fn image() -> Image {
    Image::make(64 << 20, &Mkfs::new()).unwrap()
}

fn one<T: rusqlite::types::FromSql>(database: &Connection, query: &str) -> T {
    database.query_row(query, [], |row| row.get(0)).unwrap()
}

fn is_sound(database: &Connection) {
    assert_eq!(one::<String>(database, "PRAGMA integrity_check"), "ok");
}

/// Adds a row to two tables in one transaction.
fn transfer(database: &mut Connection, n: i64) -> rusqlite::Result<()> {
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let padding = "x".repeat(3000);
    tx.execute("INSERT INTO debit VALUES (?1, ?2)", (n, &padding))?;
    tx.execute("INSERT INTO credit VALUES (?1, ?2)", (n, &padding))?;
    tx.commit()
}

fn tables(database: &Connection) {
    database
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS debit (n INTEGER PRIMARY KEY, text);
             CREATE TABLE IF NOT EXISTS credit (n INTEGER PRIMARY KEY, text);",
        )
        .unwrap();
}

#[test]
fn every_journal_mode_keeps_what_was_committed() {
    let image = image();
    let modes = ["delete", "truncate", "persist", "memory", "off"];
    for (volume_journal, batches) in [("ordered", false), ("ldj", true), ("stet", true)] {
        for mode in modes {
            let databases = Databases::open(image.path(), volume_journal);
            let mut database = databases.connect();
            let set: String = one(&database, &format!("PRAGMA journal_mode={mode}"));
            assert_eq!(set, mode);
            database
                .execute_batch("DROP TABLE IF EXISTS debit; DROP TABLE IF EXISTS credit")
                .unwrap();
            tables(&database);
            let before = databases.batches();
            for n in 0..20 {
                transfer(&mut database, n).unwrap();
            }
            let took = databases.batches() - before;
            // A database without a journal mode does not use groups either.
            let wanted = batches && mode != "off";
            assert_eq!(took == 20, wanted, "{volume_journal}, {mode}: {took}");
            database.execute_batch("VACUUM").unwrap();
            drop(database);
            let Databases {
                volume,
                store,
                _registered,
                ..
            } = databases;
            drop((store, _registered));
            volume.close().unwrap();
            let databases = Databases::open(image.path(), volume_journal);
            let database = databases.connect();
            is_sound(&database);
            assert_eq!(one::<i64>(&database, "SELECT count(*) FROM debit"), 20);
        }
    }
    image.e2fsck_fn().unwrap();
}

#[test]
fn a_rollback_leaves_what_was() {
    for journal in ["ordered", "ldj"] {
        let image = image();
        let databases = Databases::open(image.path(), journal);
        let mut database = databases.connect();
        // So small that a transaction spills before its end.
        database.execute_batch("PRAGMA cache_size=5").unwrap();
        tables(&database);
        transfer(&mut database, 1).unwrap();
        let tx = database.transaction().unwrap();
        for n in 2..200 {
            let text = "y".repeat(3000);
            tx.execute("INSERT INTO debit VALUES (?1, ?2)", (n, text))
                .unwrap();
        }
        tx.rollback().unwrap();
        assert_eq!(one::<i64>(&database, "SELECT count(*) FROM debit"), 1);
        is_sound(&database);
    }
}

#[test]
fn connections_keep_out_of_each_others_way() {
    let image = image();
    let databases = Databases::open(image.path(), "ldj");
    let (mut a, mut b) = (databases.connect(), databases.connect());
    tables(&a);
    let busy = |done: rusqlite::Result<()>| {
        assert_eq!(
            done.unwrap_err().sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy)
        );
    };
    let writes = a
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    writes
        .execute("INSERT INTO debit VALUES (1, 'a')", [])
        .unwrap();
    busy(transfer(&mut b, 2));
    // A reader is let in, and sees nothing of the transaction.
    assert_eq!(one::<i64>(&b, "SELECT count(*) FROM debit"), 0);
    {
        let mut reading = b.prepare("SELECT * FROM sqlite_schema").unwrap();
        let mut rows = reading.query([]).unwrap();
        rows.next().unwrap().unwrap();
        // The writer cannot commit while there is a reader.
        busy(writes.execute_batch("COMMIT"));
    }
    writes.commit().unwrap();
    transfer(&mut b, 2).unwrap();
    assert_eq!(one::<i64>(&a, "SELECT count(*) FROM debit"), 2);
    let exclusive = a
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .unwrap();
    busy(b.query_row("SELECT count(*) FROM debit", [], |_| Ok(())));
    drop(exclusive);
    assert_eq!(one::<i64>(&b, "SELECT count(*) FROM debit"), 2);
}

#[test]
fn nothing_that_was_committed_is_lost_with_the_process() {
    for (round, journal) in ["ordered", "ldj", "stet", "ldj", "ordered", "stet"]
        .iter()
        .enumerate()
    {
        let image = image();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{journal}:{}", image.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = -1;
        let mut killed = false;
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("committed ") {
                last = n.parse().unwrap();
            }
            if last == 20 + round as i64 * 7 && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        assert!(killed && !child.wait().unwrap().success());
        let databases = Databases::open(image.path(), journal);
        let database = databases.connect();
        is_sound(&database);
        let count = |table| one::<i64>(&database, &format!("SELECT count(*) FROM {table}"));
        assert!(
            count("debit") > last,
            "{journal}: {} of {last}",
            count("debit")
        );
        assert_eq!(count("debit"), count("credit"), "{journal}");
    }
}

/// Commits until it is killed, if the test above runs it.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let (journal, image) = what.split_once(':').unwrap();
    let databases = Databases::open(Path::new(image), journal);
    let mut database = databases.connect();
    tables(&database);
    for n in 0.. {
        transfer(&mut database, n).unwrap();
        println!("committed {n}");
    }
}
