//! The transaction loads of PostgreSQL.

/// A mix of transactions.
pub(crate) struct Load {
    /// The title in the report.
    pub(crate) title: &'static str,
    /// The script that makes the tables, for psql with the variable `scale`; `None`: pgbench makes
    /// its own.
    pub(crate) tables: Option<&'static str>,
    /// Scripts for pgbench with the variable `scale`, with weights; if empty, its own.
    pub(crate) scripts: &'static [Script],
    /// A query for the number of transactions of the first script, or of pgbench's own, that were
    /// done.
    pub(crate) done: &'static str,
}

/// A transaction script.
pub(crate) struct Script {
    pub(crate) weight: u32,
    pub(crate) text: &'static str,
}

const fn script(weight: u32, text: &'static str) -> Script {
    Script { weight, text }
}

/// pgbench's own: each transaction changes a row in three tables and adds one to a fourth.
pub(crate) const TPCB: Load = Load {
    title: "PostgreSQL",
    tables: None,
    scripts: &[],
    done: "SELECT count(*) FROM pgbench_history",
};

/// YCSB's workload A: half reads, half updates, with a skewed choice of records.
pub(crate) const YCSB_A: Load = Load {
    title: "PostgreSQL, YCSB A",
    tables: Some(include_str!("ycsb.sql")),
    scripts: &[
        script(
            1,
            "\\set n :scale * 10000\n\\set k 1 + permute(random_zipfian(1, :n, 1.01) - 1, :n)\n\
             UPDATE usertable SET f3 = left(repeat(md5(random()::text), 4), 100), updates = updates + 1 WHERE k = :k;\n",
        ),
        script(
            1,
            "\\set n :scale * 10000\n\\set k 1 + permute(random_zipfian(1, :n, 1.01) - 1, :n)\n\
             SELECT * FROM usertable WHERE k = :k;\n",
        ),
    ],
    done: "SELECT sum(updates) FROM usertable",
};

/// TPC-C's five transactions in its mix (clause 5.2.3), without think times.
pub(crate) const TPCC: Load = Load {
    title: "PostgreSQL, TPC-C mix",
    tables: Some(include_str!("tpcc.sql")),
    scripts: &[
        script(
            45,
            "\\set w random(1, :scale)\n\\set d random(1, 10)\n\\set c random(1, 300)\n\\set n random(5, 15)\n\
             SELECT order_goods(:w, :d, :c, :n);\n",
        ),
        script(
            43,
            "\\set w random(1, :scale)\n\\set d random(1, 10)\n\\set c random(1, 300)\n\\set a random(1, 5000)\n\
             SELECT pay(:w, :d, :c, :a);\n",
        ),
        script(
            4,
            "\\set w random(1, :scale)\n\\set by random(1, 10)\nSELECT deliver(:w, :by);\n",
        ),
        script(
            4,
            "\\set w random(1, :scale)\n\\set d random(1, 10)\n\\set c random(1, 300)\n\
             SELECT balance FROM customer WHERE w_id = :w AND d_id = :d AND c_id = :c;\n\
             SELECT * FROM order_line l JOIN (SELECT o_id FROM orders WHERE w_id = :w AND d_id = :d ORDER BY o_id DESC LIMIT 1) o \
             USING (o_id) WHERE l.w_id = :w AND l.d_id = :d;\n",
        ),
        script(
            4,
            "\\set w random(1, :scale)\n\\set d random(1, 10)\n\
             SELECT count(DISTINCT s.i_id) FROM district t JOIN order_line l ON l.w_id = t.w_id AND l.d_id = t.d_id \
             AND l.o_id >= t.next_order - 20 JOIN stock s ON s.w_id = l.w_id AND s.i_id = l.i_id \
             WHERE t.w_id = :w AND t.d_id = :d AND s.quantity < 20;\n",
        ),
    ],
    done: "SELECT count(*) FROM orders",
};
