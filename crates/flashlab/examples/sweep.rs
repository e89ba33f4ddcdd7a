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
        let mut best = vec![f64::INFINITY; sizes.len()];
        let mut who = vec![""; sizes.len()];
        for p in PolicyKind::ALL {
            if p == PolicyKind::GdErase {
                continue;
            }
            let mut line = String::new();
            for (i, s) in sizes.iter().enumerate() {
                let o = run(
                    &trace,
                    &make(p, s << 20),
                    &mut aged.duplicate(),
                    &mut |_| (),
                )?;
                let t = o.device.elapsed as f64 / 1e9;
                line += &format!(
                    "{t:9.1} ({:6} er {:5.2} waf {:7} wr)",
                    o.device.flash.erases, o.device.waf, o.cache.writes
                );
                if t < best[i] {
                    best[i] = t;
                    who[i] = p.name();
                }
            }
            println!("{:7} {:10} {line}", w.name(), p.name());
        }
        println!("{:7} best       {best:.1?} {who:?}", w.name());
        for c in &words[2..] {
            let n: Vec<u32> = c.split(',').map(|n| n.parse().unwrap_or(0)).collect();
            let costs = Costs {
                read: n[0],
                write: n[1],
                visit: n[2],
                share: n[3],
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
