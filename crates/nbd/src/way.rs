//! The way to an export: everything that must be known before connecting.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::address::{Address, Endpoint};
use crate::connection::Connection;
use crate::error::{Result, Trouble};
use crate::handshake::Export;
use crate::place::{Connector, Place};
use crate::tls::Tls;

/// The parameters for connecting to an export.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) address: Address,
    place: Arc<Place>,
    tls: Option<Tls>,
    /// Time limit for the server's answers.
    patience: Duration,
}

impl Way {
    /// # Errors
    /// The certificates cannot be read.
    pub(crate) fn of(
        address: Address,
        connector: Option<Connector>,
        patience: Duration,
    ) -> Result<Way> {
        let host = match &address.endpoint {
            Endpoint::Unix(_) => "",
            Endpoint::Tcp(host, _) => host.as_str(),
        };
        let tls = address.tls.as_ref().map(|tls| Tls::read(tls, host));
        let tls = tls
            .transpose()
            .map_err(|e| Trouble::refused(e.to_string()))?;
        Ok(Way {
            place: Arc::new(Place::of(&address, connector)),
            address,
            tls,
            patience,
        })
    }

    /// Makes the only connection that there will be. Reads nothing from the server.
    ///
    /// # Errors
    /// No server answers.
    pub(crate) fn reach(&mut self) -> std::io::Result<()> {
        let socket = self.place.connect(self.patience)?;
        self.place = Arc::new(Place::Made(Mutex::new(Some(socket))));
        Ok(())
    }

    /// Connects, and runs the handshake.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    pub(crate) fn connect(&self) -> Result<(Connection, Export)> {
        let (tls, export) = (self.tls.as_ref(), &self.address.export);
        Connection::open(&self.place, tls, export, self.patience)
    }
}
