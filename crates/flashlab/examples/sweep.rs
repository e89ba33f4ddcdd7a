//! Tuning.
use stetfs_cache::{Costs, PolicyKind};
use stetfs_flashlab::generate::Workload;
use stetfs_flashlab::{Setup, run};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ssd = words[0] == "ssd";
    let part: f64 = words[1].parse()?;
    let make = |p, c| {
        if ssd {
            Setup::ssd(p, c)
        } else {
            Setup::microsd(p, c)
        }
    };
    let aged = make(PolicyKind::Lru, 0).device()?;
    let sizes: Vec<u64> = if ssd {
        vec![32, 128, 512]
    } else {
        vec![4, 16, 64]
    };
    for w in Workload::ALL {
        let trace = w.generate(
            1,
            if matches!(w, Workload::Dbench) {
                part / 3.0
            } else {
                part
            },
        );
        let i = Workload::ALL.iter().position(|x| *x == w).unwrap_or(0);
        let best = if ssd {
            [
                [25.8, 14.3, 5.8],
                [7.1, 5.0, 3.0],
                [64.3, 57.1, 42.2],
                [38.8, 36.9, 31.5],
            ][i]
        } else {
            [
                [326.5, 287.9, 93.8],
                [147.2, 122.1, 87.2],
                [2536.6, 1886.4, 1238.3],
                [737.1, 700.0, 616.6],
            ][i]
        };
        let who = "";
        println!("{:7} best       {best:?} {who}", w.name());
        for c in &words[2..] {
            let n: Vec<u32> = c.split(',').map(|n| n.parse().unwrap_or(0)).collect();
            let costs = Costs {
                read: n[0],
                write: n[1],
                visit: n[2],
                rest: n[3],
            };
            let mut line = String::new();
            for (i, s) in sizes.iter().enumerate() {
                let setup = Setup {
                    costs,
                    ..make(PolicyKind::GdErase, s << 20)
                };
                let o = run(&trace, &setup, &mut aged.duplicate(), &mut |_| ())?;
                let t = o.device.elapsed as f64 / 1e9;
                line += &format!(
                    "{t:9.1} {:+6.1}% ({:6} er {:5.2} waf {:7} wr)",
                    100.0 * (t / best[i] - 1.0),
                    o.device.flash.erases,
                    o.device.waf,
                    o.cache.writes
                );
            }
            println!("{:7} {c:18} {line}", w.name());
        }
    }
    Ok(())
}
