"""MariaDB and PostgreSQL that leave their own protection from torn pages out, on a mount: what scripts/database-kills and
scripts/database-cuts do with them.

A database gets a directory for its sockets and logs, and the mount that its data is on; where pages are not whole there, it is told to
do without protection all the same. Clients work beside a counter, which is told of each of its transactions before it asks for the
next."""

import glob
import os
import pwd
import re
import signal
import subprocess
import time

LEFT_BY_PURGE = re.compile(r"\tWarning\tInnoDB: Clustered index record not found for index .*: COMPACT RECORD\(info_bits=32,")
DEVICE = 1 << 30
PATIENCE_S = 120


class Wrong(Exception):
    """The file system or the database lost something."""


def run(*command, **how):
    """Runs it, and gives what it printed; says what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def children(pid):
    """Processes that this one started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(what, done):
    until = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > until:
            raise Wrong(f"{what} does not come")
        time.sleep(0.05)


def kill(pids):
    """Ends processes of ours, and waits for their end."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for("the end of the database", lambda: not any(map(is_alive, pids)))


def make_volume(top):
    """The path of an image."""
    image = f"{top}/image"
    with open(image, "wb") as file:
        file.truncate(DEVICE)
    run("mke2fs", "-q", "-t", "ext4", "-J", "size=64", image)
    return image


class Counter:
    """A client that is told of each of its transactions before it asks for the next."""

    def __init__(self, command, insert, **how):
        """`insert` makes the SQL text of transaction n."""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)
        self.insert, self.told = insert, 0

    def count(self):
        """One more. False: there is no answer."""
        n = self.told + 1
        try:
            self.process.stdin.write(f"{self.insert(n)}; SELECT {n};\n")
            self.process.stdin.flush()
            if self.process.stdout.readline().strip() != str(n):
                return False
        except OSError:
            return False
        self.told = n
        return True


class Database:
    """What both have: a server, clients, and a counter."""

    server = clients = counter = None
    rounds = 0

    def __init__(self, top, dir, whole):
        """`whole`: pages are whole on this mount."""
        self.top, self.dir, self.data, self.whole = top, dir, f"{dir}/data", whole

    def work(self, until, told=lambda n: None):
        """Counts, beside the clients."""
        while time.monotonic() < until:
            if not self.counter.count():
                raise Wrong(f"a transaction is refused: {tail(self.log.name)}")
            told(self.counter.told)
            self.worked()
        if self.clients.poll() is not None:
            raise Wrong("the clients ended by themselves")

    def finish(self):
        """The clients end; what they were doing may be done or not."""
        kill([self.clients.pid, self.counter.process.pid])
        self.clients.wait()
        self.counter.process.wait()

    def end(self):
        """Ends what still runs, however far it came."""
        if self.server and self.server.poll() is None:
            kill([*children(self.server.pid), self.server.pid])
        for process in (self.clients, self.counter and self.counter.process):
            if process and process.poll() is None:
                kill([process.pid])


class Postgres(Database):
    """PostgreSQL with pgbench."""

    SETTINGS = {
        "full_page_writes": "off", "fsync": "on", "synchronous_commit": "on", "shared_buffers": "16MB",
        "checkpoint_timeout": "30s", "max_wal_size": "48MB", "min_wal_size": "32MB", "bgwriter_delay": "10ms",
        "bgwriter_lru_maxpages": "1000", "listen_addresses": "''", "autovacuum_naptime": "5s", "wal_recycle": "on",
    }
    SCRIPT = r"""
\set n :n + 1
\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
INSERT INTO done VALUES (:round, :client_id, :n);
END;
"""
    CLIENTS, SCALE = 4, 4
    # The counter is one of the clients, the last.
    COUNTER = CLIENTS
    CHECKPOINT_S = 1

    def __init__(self, top, dir, whole):
        super().__init__(top, dir, whole)
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.user = pwd.getpwnam("postgres")
        self.sockets = f"{top}/sockets"
        os.mkdir(self.sockets)
        os.chown(self.sockets, self.user.pw_uid, self.user.pw_gid)
        os.chmod(top, 0o755)
        self.environment = {"PATH": os.environ["PATH"], "PGHOST": self.sockets}
        self.checkpoint, self.next_checkpoint = None, 0
        self.counts = {"amcheck": 0, "checksums": 0}

    def tool(self, name, *arguments):
        return ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups",
                f"{self.bin}/{name}", *arguments]

    def run(self, name, *arguments):
        return run(*self.tool(name, *arguments), cwd="/", env=self.environment)

    def psql(self, *arguments):
        return self.tool("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *arguments, "postgres")

    def sql(self, text):
        return run(*self.psql("-c", text), cwd="/", env=self.environment).strip()

    def make(self):
        os.mkdir(self.data)
        os.chown(self.data, self.user.pw_uid, self.user.pw_gid)
        os.chmod(self.data, 0o700)
        self.run("initdb", "-D", self.data, "--data-checksums", "-A", "trust", "--no-instructions")
        with open(f"{self.data}/postgresql.conf", "a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in self.SETTINGS.items())
        self.start()
        self.run("pgbench", "-i", "-q", "-s", str(self.SCALE), "postgres")
        self.sql("CREATE TABLE done (round int, client int, n int, PRIMARY KEY (round, client, n)); CREATE EXTENSION amcheck; CHECKPOINT")

    def start(self):
        self.log = open(f"{self.top}/server.log", "a")
        self.server = subprocess.Popen(self.tool("postgres", "-D", self.data, "-k", self.sockets), cwd="/", stdout=self.log, stderr=self.log)
        ready = lambda: subprocess.run(self.tool("pg_isready", "-q", "-h", self.sockets), cwd="/").returncode == 0
        wait_for("PostgreSQL", lambda: self.server.poll() is not None or ready())
        if self.server.poll() is not None:
            raise Wrong(f"PostgreSQL does not start: {tail(self.log.name)}")
        if self.sql("SHOW full_page_writes") != "off" or self.sql("SHOW data_checksums") != "on":
            raise RuntimeError("the settings do not hold")

    def load(self):
        self.rounds += 1
        self.logs = f"{self.top}/told{self.rounds}"
        os.mkdir(self.logs)
        os.chown(self.logs, self.user.pw_uid, self.user.pw_gid)
        with open(f"{self.top}/script.sql", "w") as file:
            file.write(self.SCRIPT)
        define = ["-D", "n=0", "-D", f"round={self.rounds}", "-D", f"scale={self.SCALE}"]
        bench = self.tool("pgbench", "-n", "-c", str(self.CLIENTS), "-j", "2", "-T", "600", "-l", "--log-prefix", f"{self.logs}/log",
                          "-f", f"{self.top}/script.sql", *define, "postgres")
        out = open(f"{self.top}/pgbench.log", "a")
        how = {"cwd": "/", "env": self.environment}
        with open(f"{self.top}/pgbench.log", "a") as out:
            self.clients = subprocess.Popen(bench, stdout=out, stderr=out, **how)
            self.counter = Counter(self.psql(), lambda n: f"INSERT INTO done VALUES ({self.rounds}, {self.COUNTER}, {n})", stderr=out, **how)

    def worked(self):
        """Pages go home at checkpoints, while others work."""
        if self.checkpoint and self.checkpoint.poll() is None or time.monotonic() < self.next_checkpoint:
            return
        self.next_checkpoint = time.monotonic() + self.CHECKPOINT_S
        self.checkpoint = subprocess.Popen(self.psql("-c", "CHECKPOINT"), cwd="/", env=self.environment, stdout=self.log, stderr=self.log)

    def kill(self):
        """Without the file system it can do nothing any more."""
        kill([*children(self.server.pid), self.server.pid])
        self.server.wait()
        # It writes its log when it has seen the end of all its clients.
        self.clients.wait(PATIENCE_S)
        kill([self.counter.process.pid])
        self.counter.process.wait()

    def told(self):
        """Transactions that each client was told of."""
        counts = [0] * self.CLIENTS
        for name in glob.glob(f"{self.logs}/log*"):
            with open(name) as file:
                for line in file:
                    client, number = map(int, line.split()[:2])
                    counts[client] = max(counts[client], number)
        return [*counts, self.counter.told]

    def before_start(self):
        """The processes that it names are not of this time."""
        if os.path.exists(f"{self.data}/postmaster.pid"):
            os.remove(f"{self.data}/postmaster.pid")

    def last(self, client=COUNTER):
        """The last transaction of a client in the last round; all before it are there."""
        where = f"FROM done WHERE round = {self.rounds} AND client = {client}"
        count, last = map(int, self.sql(f"SELECT count(*) || ' ' || coalesce(max(n), 0) {where}").split())
        if count != last:
            raise Wrong(f"{count} transactions of client {client} are there, up to {last}")
        return last

    def look(self):
        """After a recovery. Gives how many transactions of the last round had been acknowledged."""
        counts = self.told()
        for client, told in enumerate(counts):
            last = self.last(client)
            if not told <= last <= told + 1:
                raise Wrong(f"client {client} was told of {told}: {last} is the last that is there")
        self.consistent()
        return sum(counts)

    def consistent(self):
        """After a recovery: nothing is there in part."""
        for client in range(self.CLIENTS):
            self.last(client)
        sums = self.sql("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
                        "(SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)")
        if len(set(sums.split("|"))) != 1:
            raise Wrong(f"the sums differ: {sums}")
        self.run("pg_amcheck", "--heapallindexed", "--parent-check", "postgres")
        self.counts["amcheck"] += 1

    def stop(self):
        self.server.send_signal(signal.SIGINT)
        self.server.wait(PATIENCE_S)

    def look_at_stopped(self):
        self.run("pg_checksums", "--check", "-D", self.data)
        self.counts["checksums"] += 1

    def after_all(self):
        with open(self.log.name) as file:
            text = file.read()
        self.counts["recoveries"] = text.count("redo done at")


class MariaDb(Database):
    """MariaDB with sysbench."""

    SETTINGS = ["--no-defaults", "--skip-networking", "--user=root", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M",
                "--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync", "--innodb-max-dirty-pages-pct=1",
                "--innodb-io-capacity=2000", "--innodb-fast-shutdown=1", "--log-warnings=9"]
    TABLES = ["--tables=4", "--table-size=20000"]
    # A namespace of its own: with all of /dev, and FusionIO's file, which only says that it is
    # worth asking. Without the mounts of others, which it would keep in use.
    ALONE = ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
             'while read -r what where kind rest; do case $kind in fuse*|ext*|xfs|btrfs) '
             '[ "$where" = / ] || [ "$where" = "$1" ] || umount -l "$where" ;; esac; done < /proc/self/mounts; shift; '
             'cd "$0" && mount -t tmpfs none . && cd "$0" && mkdir up work shm && mount --rbind /dev/shm shm && '
             'mount -t overlay overlay -o lowerdir=/dev,upperdir=up,workdir=work /dev && mount --rbind shm /dev/shm && '
             ': > /dev/fcta && exec "$@"']

    def __init__(self, top, dir, whole):
        super().__init__(top, dir, whole)
        self.socket = f"{top}/socket"
        self.over = f"{top}/dev"
        os.mkdir(self.over)
        self.counts = {"pages_written": 0, "doublewrite_pages": 0, "spaces_checked": 0}
        # Where pages are whole it finds out by itself.
        self.settings = self.SETTINGS if whole else [*self.SETTINGS, "--skip-innodb-doublewrite"]

    def sql(self, text, *more):
        return run("mariadb", "--no-defaults", "-N", "-B", "-u", "root", f"--socket={self.socket}", "-e", text, *more).strip()

    def make(self):
        # innochecksum takes pages in the doublewrite buffer for damaged ones: there must be none
        # from the beginning.
        run(*self.ALONE, self.over, self.dir, "mariadb-install-db", "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", "--user=root",
            f"--datadir={self.data}")
        self.start()
        self.sql("CREATE DATABASE work; CREATE TABLE work.done (round INT, n INT, PRIMARY KEY (round, n)) ENGINE=InnoDB")
        run(*self.sysbench("prepare"))

    def sysbench(self, what, *more):
        return ["sysbench", "oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--mysql-db=work",
                f"--mysql-socket={self.socket}", *self.TABLES, *more, what]

    def start(self):
        self.log = open(f"{self.top}/server.log", "a")
        command = [*self.ALONE, self.over, self.dir, "mariadbd", *self.settings, f"--datadir={self.data}", f"--socket={self.socket}", f"--pid-file={self.top}/pid"]
        self.server = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        ping = ["mariadb-admin", "--no-defaults", "-u", "root", f"--socket={self.socket}", "ping"]
        ready = lambda: subprocess.run(ping, capture_output=True).returncode == 0
        wait_for("MariaDB", lambda: self.server.poll() is not None or ready())
        if self.server.poll() is not None:
            raise Wrong(f"MariaDB does not start: {tail(self.log.name)}")
        if os.path.exists("/dev/fcta"):
            raise RuntimeError("/dev/fcta is everybody's")

    def load(self):
        self.rounds += 1
        self.clients = subprocess.Popen(self.sysbench("run", "--threads=3", "--time=600"), stdout=self.log, stderr=self.log)
        counter = ["mariadb", "--no-defaults", "-N", "-B", "-n", "-u", "root", f"--socket={self.socket}", "work"]
        self.counter = Counter(counter, lambda n: f"INSERT INTO done VALUES ({self.rounds}, {n})", stderr=self.log)

    def worked(self):
        pass

    def pages(self):
        """How many it has written; none twice."""
        status = dict(line.split("\t") for line in self.sql("SHOW GLOBAL STATUS LIKE 'Innodb_%pages_written'").splitlines())
        self.counts["doublewrite_pages"] += int(status["Innodb_dblwr_pages_written"])
        self.counts["pages_written"] += int(status["Innodb_pages_written"])
        if self.counts["doublewrite_pages"]:
            raise Wrong(f"MariaDB writes pages twice: {self.counts}")

    def work(self, until, told=lambda n: None):
        super().work(until, told)
        self.pages()

    def kill(self):
        # Until it is noticed.
        while self.counter.count():
            pass
        kill([self.server.pid, self.clients.pid, self.counter.process.pid])
        for process in (self.server, self.clients, self.counter.process):
            process.wait()

    def before_start(self):
        """No page is torn, before anybody repairs one."""
        spaces = [f"{self.data}/ibdata1", *glob.glob(f"{self.data}/**/*.ibd", recursive=True), *glob.glob(f"{self.data}/undo*")]
        for space in spaces:
            if os.path.getsize(space) > 0:
                checked = subprocess.run(["innochecksum", space], capture_output=True, text=True)
                if checked.returncode:
                    raise Wrong(f"innochecksum {space}: {checked.stdout}{checked.stderr}")
        self.counts["spaces_checked"] += len(spaces)

    def last(self):
        """The last transaction of the counter in the last round; all before it are there."""
        count, last = map(int, self.sql(f"SELECT count(*), coalesce(max(n), 0) FROM done WHERE round = {self.rounds}", "work").split())
        if count != last:
            raise Wrong(f"{count} transactions of the counter are there, up to {last}")
        return last

    def look(self):
        """After a recovery. Gives how many transactions of the last round had been acknowledged."""
        told, last = self.counter.told, self.last()
        if not told <= last <= told + 1:
            raise Wrong(f"{told} were acknowledged: {last} is the last that is there")
        self.consistent()
        return told

    def consistent(self):
        """After a recovery: nothing is there in part."""
        checked = self.sql("CHECK TABLE sbtest1, sbtest2, sbtest3, sbtest4, done EXTENDED", "work")
        # A delete-marked record of an index that purging left behind is no damage (MDEV-24402), and
        # comes of kills alone, on tmpfs, too.
        left = [line for line in checked.splitlines() if LEFT_BY_PURGE.search(line)]
        self.counts["left_by_purge"] = self.counts.get("left_by_purge", 0) + len(left)
        if any(not line.endswith("\tOK") for line in checked.splitlines() if line not in left):
            raise Wrong(f"CHECK TABLE: {checked}")

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(PATIENCE_S)

    def look_at_stopped(self):
        self.before_start()

    def after_all(self):
        with open(self.log.name) as file:
            text = file.read()
        self.counts["says_atomic_writes"] = text.count("due to atomic writes")
        self.counts["recoveries"] = text.count("Starting crash recovery") or text.count("crash recovery from checkpoint")
        if not self.counts["pages_written"]:
            raise Wrong("no page was written")
        if self.whole and not self.counts["says_atomic_writes"]:
            raise Wrong("MariaDB's log does not say that it has atomic writes")


def tail(path):
    with open(path) as file:
        return "".join(file.readlines()[-30:])


DATABASES = {"mariadb": MariaDb, "postgresql": Postgres}
