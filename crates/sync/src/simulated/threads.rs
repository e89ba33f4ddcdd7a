//! Threads: the standard library's; one that a simulated thread starts is simulated, too.

/// As `std::thread`.
pub mod thread {
    use std::io;
    use std::num::NonZero;
    use std::sync::Arc;
    use std::time::Duration;

    pub use std::thread::{AccessError, LocalKey, Result, ThreadId, panicking};

    use super::super::operations;
    use super::super::world::{Op, Task};

    fn nanos(time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// As `std::thread::Thread`.
    #[derive(Clone)]
    pub struct Thread {
        inner: std::thread::Thread,
        task: Option<Task>,
    }

    impl Thread {
        /// Its id.
        pub fn id(&self) -> ThreadId {
            self.inner.id()
        }

        /// Its name.
        pub fn name(&self) -> Option<&str> {
            self.inner.name()
        }

        /// Ends its `park`, now or the next one.
        pub fn unpark(&self) {
            match &self.task {
                Some(task) => task.unpark(),
                None => self.inner.unpark(),
            }
        }
    }

    /// The calling thread.
    pub fn current() -> Thread {
        Thread {
            inner: std::thread::current(),
            task: operations::this_task(),
        }
    }

    /// Waits for `unpark`.
    #[track_caller]
    pub fn park() {
        if !operations::park(None) {
            std::thread::park();
        }
    }

    /// Waits for `unpark`, at most for `limit`.
    #[track_caller]
    pub fn park_timeout(limit: Duration) {
        if !operations::park(Some(nanos(limit))) {
            std::thread::park_timeout(limit);
        }
    }

    /// Sleeps: virtual time goes on by `time`.
    #[track_caller]
    pub fn sleep(time: Duration) {
        if !operations::sleep_until(|now| now.saturating_add(nanos(time))) {
            std::thread::sleep(time);
        }
    }

    /// Leaves the core to others.
    pub fn yield_now() {
        if !operations::point(Op::Yield) {
            std::thread::yield_now();
        }
    }

    /// The number of cores.
    ///
    /// # Errors
    /// As that of the standard library.
    pub fn available_parallelism() -> io::Result<NonZero<usize>> {
        match operations::cores().and_then(NonZero::new) {
            Some(cores) => Ok(cores),
            None => std::thread::available_parallelism(),
        }
    }

    /// As `std::thread::JoinHandle`.
    pub struct JoinHandle<T> {
        inner: std::thread::JoinHandle<T>,
        thread: Thread,
    }

    impl<T> JoinHandle<T> {
        /// Waits for the thread's end.
        ///
        /// # Errors
        /// The value of its panic.
        #[track_caller]
        pub fn join(self) -> Result<T> {
            if let Some(task) = &self.thread.task {
                task.await_end();
            }
            self.inner.join()
        }

        /// The thread.
        pub fn thread(&self) -> &Thread {
            &self.thread
        }

        /// Whether the thread has ended.
        pub fn is_finished(&self) -> bool {
            operations::point(Op::Other);
            match &self.thread.task {
                Some(task) => task.is_done(),
                None => self.inner.is_finished(),
            }
        }
    }

    /// As `std::thread::Builder`.
    #[derive(Default)]
    pub struct Builder {
        name: Option<String>,
        stack: Option<usize>,
    }

    impl Builder {
        /// A thread with neither name nor size of its stack.
        pub fn new() -> Builder {
            Builder::default()
        }

        /// Names it.
        #[must_use]
        pub fn name(self, name: String) -> Builder {
            Builder {
                name: Some(name),
                ..self
            }
        }

        /// The size of its stack in bytes.
        #[must_use]
        pub fn stack_size(self, bytes: usize) -> Builder {
            Builder {
                stack: Some(bytes),
                ..self
            }
        }

        fn host(self) -> (std::thread::Builder, Option<Task>) {
            let task = operations::new_task(self.name.as_deref());
            let mut host = std::thread::Builder::new();
            if let Some(name) = self.name {
                host = host.name(name);
            }
            if let Some(bytes) = self.stack {
                host = host.stack_size(bytes);
            }
            (host, task)
        }

        /// Starts it.
        ///
        /// # Errors
        /// If the host starts no thread.
        pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            let (host, task) = self.host();
            let mine = task.clone();
            let inner = host.spawn(move || {
                let _entered = mine.map(Task::enter);
                f()
            })?;
            let thread = Thread {
                inner: inner.thread().clone(),
                task,
            };
            Ok(JoinHandle { inner, thread })
        }

        /// Starts it in a scope.
        ///
        /// # Errors
        /// If the host starts no thread.
        pub fn spawn_scoped<'scope, 'env, F, T>(
            self,
            scope: &Scope<'scope, 'env>,
            f: F,
        ) -> io::Result<ScopedJoinHandle<'scope, T>>
        where
            F: FnOnce() -> T + Send + 'scope,
            T: Send + 'scope,
        {
            let (host, task) = self.host();
            let mine = task.clone();
            let inner = host.spawn_scoped(scope.inner, move || {
                let _entered = mine.map(Task::enter);
                f()
            })?;
            scope.tasks.lock().extend(task.clone());
            Ok(ScopedJoinHandle { inner, task })
        }
    }

    /// Starts a thread.
    ///
    /// # Panics
    /// If the host starts no thread.
    pub fn spawn<F, T>(f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match Builder::new().spawn(f) {
            Ok(handle) => handle,
            Err(e) => panic!("failed to spawn thread: {e}"),
        }
    }

    /// As `std::thread::Scope`.
    #[derive(Clone)]
    pub struct Scope<'scope, 'env: 'scope> {
        inner: &'scope std::thread::Scope<'scope, 'env>,
        tasks: Arc<parking_lot::Mutex<Vec<Task>>>,
    }

    /// As `std::thread::ScopedJoinHandle`.
    pub struct ScopedJoinHandle<'scope, T> {
        inner: std::thread::ScopedJoinHandle<'scope, T>,
        task: Option<Task>,
    }

    impl<T> ScopedJoinHandle<'_, T> {
        /// Waits for the thread's end.
        ///
        /// # Errors
        /// The value of its panic.
        #[track_caller]
        pub fn join(self) -> Result<T> {
            if let Some(task) = &self.task {
                task.await_end();
            }
            self.inner.join()
        }

        /// Whether the thread has ended.
        pub fn is_finished(&self) -> bool {
            operations::point(Op::Other);
            match &self.task {
                Some(task) => task.is_done(),
                None => self.inner.is_finished(),
            }
        }
    }

    impl<'scope> Scope<'scope, '_> {
        /// Starts a thread.
        ///
        /// # Panics
        /// If the host starts no thread.
        pub fn spawn<F, T>(&self, f: F) -> ScopedJoinHandle<'scope, T>
        where
            F: FnOnce() -> T + Send + 'scope,
            T: Send + 'scope,
        {
            match Builder::new().spawn_scoped(self, f) {
                Ok(handle) => handle,
                Err(e) => panic!("failed to spawn thread: {e}"),
            }
        }
    }

    /// Waits in virtual time for a scope's threads: the wait of the standard library is one of the
    /// host.
    struct Ends(Arc<parking_lot::Mutex<Vec<Task>>>);

    impl Drop for Ends {
        fn drop(&mut self) {
            while let Some(task) = { self.0.lock().pop() } {
                task.await_end();
            }
        }
    }

    /// A scope, whose threads end before it does.
    pub fn scope<'env, F, T>(f: F) -> T
    where
        F: for<'scope, 'a> FnOnce(&'a Scope<'scope, 'env>) -> T,
    {
        std::thread::scope(|inner| {
            let scope = Scope {
                inner,
                tasks: Arc::default(),
            };
            let _ends = Ends(scope.tasks.clone());
            f(&scope)
        })
    }
}
