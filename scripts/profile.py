"""Counts perf's samples for scripts/profile, and draws them.

profile.py DIRECTORY SERVER-PID MOUNT-OPTIONS WORKLOAD …; a line of DIRECTORY/WORKLOAD.samples is
`command pid address symbol (object)`.
"""

import collections
import html
import json
import re
import sys

PARTS = [
    ("the program itself", "#4e79a7"),
    ("kernel, for the program", "#a0cbe8"),
    ("StetFS", "#e15759"),
    ("kernel, for StetFS", "#ff9d9a"),
    ("copying data", "#f1ce63"),
    ("changing threads", "#b07aa1"),
    ("device and interrupts", "#59a14f"),
    ("idle", "#e0e0e0"),
]
SAMPLE = re.compile(r"^\s*(.+?)\s+(-?\d+)\s+[0-9a-f]+ (.*) \((.*)\)\s*$")
# What a hypervisor does when one thread wakes another shows where interrupts are let in again.
THREADS = re.compile(
    r"finish_task_switch|_raw_spin_unlock_irq|try_to_wake_up|__schedule|^schedule|enqueue_|dequeue_|pick_|select_task|ttwu|update_(curr|load|cfs)"
    r"|switch_(mm|to|fpu)|futex"
)
COPYING = re.compile(r"copy_(folio|page|user|to_|from_)|_copy_(to|from)|memcpy|memmove|rep_movs|fuse_copy|clear_page")
KERNEL_THREADS = re.compile(r"^(kworker|ksoftirqd|jbd2|rcu|migration|kdamond|kswapd|loop|kcompact)")


def part(comm, pid, symbol, obj, server):
    """The part of the time that a sample belongs to."""
    if comm == "swapper":
        return "idle"
    if KERNEL_THREADS.match(comm):
        return "device and interrupts"
    if COPYING.search(symbol):
        return "copying data"
    in_kernel = obj.startswith("[kernel") or obj.startswith("[unknown]")
    if in_kernel and THREADS.search(symbol):
        return "changing threads"
    if pid == server:
        return "kernel, for StetFS" if in_kernel else "StetFS"
    return "kernel, for the program" if in_kernel else "the program itself"


def count(path, server):
    counts = collections.Counter()
    with open(path, errors="replace") as lines:
        for line in lines:
            sample = SAMPLE.match(line)
            if sample and sample[1] != "perf":
                counts[part(sample[1], int(sample[2]), sample[3], sample[4], server)] += 1
    total = sum(counts.values())
    if not total:
        sys.exit(f"profile.py: no samples in {path}")
    return {name: counts[name] / total for name, _ in PARTS}


def draw(shares, title):
    left, width, height, top = 120, 640, 26, 62
    bottom = top + len(shares) * (height + 8)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 100}" height="{bottom + 76}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="24" font-size="15">Where the processors\' time goes</text>',
        f'<text x="{left}" y="44" fill="#555">{html.escape(title)}</text>',
    ]
    for row, (workload, share) in enumerate(shares.items()):
        y, x = top + row * (height + 8), float(left)
        out.append(f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{html.escape(workload)}</text>')
        for name, colour in PARTS:
            w = share[name] * width
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{height}" fill="{colour}"><title>{name}: {share[name]:.1%}</title></rect>')
            if share[name] >= 0.045:
                out.append(f'<text x="{x + w / 2:.1f}" y="{y + 18}" text-anchor="middle" font-size="11">{share[name] * 100:.0f}</text>')
            x += w
    for i, (name, colour) in enumerate(PARTS):
        x, y = left + i % 4 * 185, bottom + 14 + i // 4 * 24
        out.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{colour}"/><text x="{x + 20}" y="{y + 12}">{name}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    directory, server, options, workloads = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    shares = {w: count(f"{directory}/{w}.samples", server) for w in workloads}
    print("".ljust(14) + "".join(name.rjust(max(len(name), 6) + 2) for name, _ in PARTS))
    for workload, share in shares.items():
        print(workload.ljust(14) + "".join(f"{share[name]:.1%}".rjust(max(len(name), 6) + 2) for name, _ in PARTS))
    with open(f"{directory}/profile.json", "w") as out:
        json.dump({"options": options, "shares": shares}, out, indent=2)
    with open(f"{directory}/profile.svg", "w") as out:
        out.write(draw(shares, f"-o {options}; per cent of all processors"))
    print(f"written: {directory}/profile.svg, {directory}/profile.json")


if __name__ == "__main__":
    main()
