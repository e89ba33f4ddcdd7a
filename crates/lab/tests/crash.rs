//! Tests of `stetfs crash`, as people and programs call it. The comparison needs root and loop
//! devices.
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stetfs_testkit::{Image, Mkfs, Scratch};

fn stetfs(dir: &Path, args: &[&str]) -> Output {
    Command::new(crate::BINARY)
        .arg("crash")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

#[test]
fn a_run_writes_its_numbers() {
    let dir = Scratch::new("crash").unwrap();
    let line =
        "run --journal data,async_commit --workload smoke --seconds 2 --seed 7 --json out.json";
    let ran = stetfs(dir.path(), &line.split(' ').collect::<Vec<_>>());
    assert!(ran.status.success(), "{}", out(&ran));
    assert!(out(&ran).contains("no promise was broken"), "{}", out(&ran));
    let report = json(&std::fs::read(dir.path().join("out.json")).unwrap());
    assert!(report["states"].as_u64().unwrap() > 100, "{report}");
    assert!(report["distinct"].as_u64().unwrap() > 20, "{report}");
    assert_eq!(report["failures"], 0);
    assert_eq!(report["seed"], 7);
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn steps_apart_find_repeat_and_shrink_a_fault() {
    let dir = Scratch::new("crash").unwrap();
    std::fs::write(
        dir.path().join("script"),
        "mkdir d\ncreate d/a\nwrite d/a 0 5000\nfsync d/a\nrename d/a b\nfsync .\n",
    )
    .unwrap();
    let line = "record --journal ordered,canary=no-barrier --workload script rec";
    let recorded = stetfs(dir.path(), &line.split(' ').collect::<Vec<_>>());
    assert!(recorded.status.success(), "{}", out(&recorded));
    assert!(
        out(&recorded).contains("operations  6"),
        "{}",
        out(&recorded)
    );

    let explored = stetfs(dir.path(), &["explore", "rec", "--seconds", "20", "--json"]);
    assert_eq!(explored.status.code(), Some(7), "{}", out(&explored));
    let report = json(&explored.stdout);
    let failure = &report["findings"][0];
    assert!(report["failures"].as_u64().unwrap() > 0);
    let small = &failure["shrunk"];
    assert!(
        small["script"].as_str().unwrap().lines().count() <= 3,
        "{small}"
    );
    for f in [failure, small] {
        let (record, state) = (&f["record"], &f["state"]);
        let repeat = ["repeat", record.as_str().unwrap(), state.as_str().unwrap()];
        let again = stetfs(dir.path(), &repeat);
        assert_eq!(again.status.code(), Some(7), "{}", out(&again));
        assert!(
            out(&again).contains("promised is the state"),
            "{}",
            out(&again)
        );
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let dir = Scratch::new("crash").unwrap();
    let said = |line: &str| {
        let ran = stetfs(dir.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(!ran.status.success(), "{line}");
        out(&ran)
    };
    assert!(said("run --journal warp").contains("ordered, data, writeback, ldj, ijournal"));
    assert!(said("run --workload none-such").contains("ace2"));
    assert!(said("run --block 512 --seconds 1").contains("1024, 2048 or 4096"));
    assert!(said("explore none-such").contains("stetfs crash record"));
    assert!(said("record --workload ace1 rec").contains("--case 0 to"));
    assert!(said("compare zfs").contains("stetfs:PRESET"));
    assert!(said("run --seconds 1 out.json").contains("--json FILE"));
}

/// The results are meaningful: ext4 keeps what it promises, and cases that it does not promise are
/// found.
#[test]
fn stetfs_beside_the_kernels_ext4() {
    let dir = Scratch::new("crash").unwrap();
    let compare = |systems: &[&str], workload: &str, states: &str| -> Value {
        let mut args = vec!["compare", "--json", "-w", workload, "--states", states];
        args.extend(systems);
        let ran = stetfs(dir.path(), &args);
        assert!(ran.status.success(), "{}", out(&ran));
        json(&ran.stdout)
    };
    let systems = [
        "stetfs:ordered",
        "stetfs:data",
        "ext4:data=ordered",
        "ext4:data=journal",
    ];
    let rows = compare(&systems, "smoke", "120");
    let number = |row: usize, field: &str| rows[row][field].as_u64().unwrap();
    for row in 0..4 {
        assert!(number(row, "distinct") > 60, "{rows:#}");
        assert_eq!(number(row, "lost") + number(row, "names"), 0, "{rows:#}");
        assert_eq!(rows[row]["fscks"][1], 0, "{rows:#}");
    }
    assert_eq!(
        number(0, "unmountable") + number(1, "unmountable"),
        0,
        "{rows:#}"
    );
    assert_eq!(number(1, "versions"), 0, "{rows:#}");
    assert_eq!(number(3, "versions"), 0, "{rows:#}");
    assert!(
        number(0, "versions") > 0 && number(2, "versions") > 0,
        "{rows:#}"
    );

    for program in ["sqlite-wal", "sqlite-delete", "git", "maildir", "tar"] {
        let rows = compare(&["stetfs:ordered", "stetfs:data"], program, "30");
        for row in rows.as_array().unwrap() {
            assert_eq!(row["lost"], 0, "{row:#}");
            assert_eq!(row["unmountable"], 0, "{row:#}");
            assert!(row["distinct"].as_u64().unwrap() > 10, "{row:#}");
        }
    }
}

/// A program that reports its lines as durable: with a sync before each report they are.
#[test]
fn a_program_of_yours_and_its_judge() {
    let dir = Scratch::new("crash").unwrap();
    let image = Image::make(16 << 20, &Mkfs::blocks(4096).journal_mib(4)).unwrap();
    let image = image.path().to_str().unwrap();
    let append = |sync: &str| {
        format!(
            "for n in $(seq 12); do echo $n >> $STETFS_DIR/log; {sync} $STETFS_DIR/log; echo $n; done"
        )
    };
    let judge = "test $(wc -l < $STETFS_DIR/log) -ge $(wc -l < $STETFS_TOLD)";
    let cut = |run: &str, check: &str| {
        let line = [
            "cut",
            image,
            "-o",
            "journal=ijournal",
            "--states",
            "24",
            "--seed",
            "3",
            "--keep",
            "kept",
            "--json",
            "--prepare",
            ": > $STETFS_DIR/log",
            "--run",
            run,
            "--check",
            check,
        ];
        stetfs(dir.path(), &line)
    };
    let ran = cut(&append("sync"), judge);
    assert!(ran.status.success(), "{}", out(&ran));
    let row = json(&ran.stdout);
    assert_eq!(
        (&row["told"], &row["broken"]),
        (&12.into(), &0.into()),
        "{row:#}"
    );
    assert!(row["cut_again"].as_u64().unwrap() > 1, "{row:#}");
    assert!(!dir.path().join("kept").exists());

    let ran = cut(&append(":"), judge);
    assert_eq!(ran.status.code(), Some(7), "{}", out(&ran));
    let row = json(&ran.stdout);
    assert!(row["broken"].as_u64().unwrap() > 0, "{row:#}");
    let kept = dir.path().join("kept").read_dir().unwrap();
    assert_eq!(kept.count(), 2 * row["examples"].as_array().unwrap().len());

    let ran = cut("echo begun; false", judge);
    assert!(out(&ran).contains("false failed"), "{}", out(&ran));
}
