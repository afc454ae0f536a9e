//! TLS with certificates of the test's own CA.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

pub struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Ca {
    pub fn new() -> Ca {
        let mut params = CertificateParams::default();
        // A unique name, so that another CA is not mistaken for this one.
        let name = format!("test {}", fastrand::u64(..));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ca(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn sign(&self, host: &str, shape: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        shape(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

/// Accepts TLS connections and forwards them to the server; asks for a certificate that `clients` has signed, if
/// given. Forwards other traffic unchanged, as sentinels use no TLS to their primary here. Returns its port.
pub async fn terminator_of(server: SocketAddr, pair: &Pair, clients: Option<&Ca>, takes_plain: bool) -> u16 {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![cert], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Any error ends the connection, which the other side notices.
                let (mut first, Ok(mut server)) = ([0], TcpStream::connect(server).await) else { return };
                let mut client = client;
                if takes_plain && client.peek(&mut first).await.is_ok() && first != [HANDSHAKE] {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                } else if let Ok(mut client) = acceptor.accept(client).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    port
}
