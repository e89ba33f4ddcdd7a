//! Computes figures of the paper and prints what was claimed beside what came out: `figure 2-4 quick`.

use clap::ValueEnum;
use stetfs_flashlab::figure::{Name, Scale};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.iter().any(|w| w == "quick");
    for name in words.iter().filter_map(|w| Name::from_str(w, false).ok()) {
        let figure = name.compute(Scale { quick, seed: 1 })?;
        println!("{}: {}", figure.name, figure.paper);
        for [what, paper, ours] in &figure.claims {
            println!("  {what}: paper {paper}, ours {ours}");
        }
        for panel in &figure.panels {
            println!("{} ({} over {})", panel.title, panel.axes[1], panel.axes[0]);
            for series in panel.series.iter().filter(|s| s.points.len() < 20) {
                print!("  {:10}", series.name);
                for (_, y) in &series.points {
                    print!(" {y:10.2}");
                }
                println!();
            }
        }
    }
    Ok(())
}
