//! TLS: the certificates of the server and of this client.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::address::Certificates;

/// The configuration of an encrypted connection.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub(crate) name: ServerName<'static>,
}

impl Tls {
    /// Reads the certificates. `host` is the name in the server's certificate, unless
    /// `certificates` names another.
    ///
    /// # Errors
    /// Missing or invalid certificates; the text names the fault.
    pub(crate) fn read(certificates: &Certificates, host: &str) -> io::Result<Tls> {
        let Certificates {
            directory,
            hostname,
        } = certificates;
        let of = |name: &str| directory.join(name);
        let wrong = |name: &str, e: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {e}", of(name).display()))
        };
        let read = |name: &str| {
            CertificateDer::pem_file_iter(of(name))
                .and_then(|all| all.collect::<Result<Vec<_>, _>>())
                .map_err(|e| wrong(name, &e))
        };
        let mut roots = RootCertStore::empty();
        for certificate in read("ca-cert.pem")? {
            roots
                .add(certificate)
                .map_err(|e| wrong("ca-cert.pem", &e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match of("client-key.pem").exists() {
            false => builder.with_no_client_auth(),
            true => {
                let key = PrivateKeyDer::from_pem_file(of("client-key.pem"))
                    .map_err(|e| wrong("client-key.pem", &e))?;
                builder
                    .with_client_auth_cert(read("client-cert.pem")?, key)
                    .map_err(|e| wrong("client-cert.pem", &e))?
            }
        };
        let name = hostname.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name)
            .map_err(|e| io::Error::other(format!("the server's name: {e}")))?;
        Ok(Tls {
            config: Arc::new(config),
            name,
        })
    }
}
