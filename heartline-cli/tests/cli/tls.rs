//! A server over TLS with a certificate of a private CA, which requires a client certificate.

#[path = "../../../tests/it/support/tls.rs"]
mod certificates;

use std::path::PathBuf;

use self::certificates::{Ca, terminator_of};
use crate::run::{Bench, ran};

/// A directory that is removed on drop.
struct Files(PathBuf);

impl Files {
    fn new() -> Files {
        let dir = std::env::temp_dir().join(format!("heartline-tls-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Files(dir)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        path.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn options_and_variables_set_a_ca_and_a_certificate() {
    let (bench, ca, clients, files) = (Bench::new().await, Ca::new(), Ca::new(), Files::new());
    let server = bench.url().trim_start_matches("redis://").trim_end_matches('/').parse().unwrap();
    let port = terminator_of(server, &ca.sign("localhost", |_| {}), Some(&clients), false).await;
    let url = format!("rediss://localhost:{port}");
    let own = clients.sign("ada", |_| {});
    let (ca, cert, key) =
        (files.write("ca.pem", &ca.pem()), files.write("ada.pem", &own.cert), files.write("ada.key", &own.key));
    let command = |args: &[&str]| {
        let mut command = bench.command(args);
        command.env("HEARTLINE_URL", &url);
        command
    };
    let refused = ran(command(&["tasks"])).await;
    assert!(
        refused.status == 1 && refused.err.contains("pass the CA of the server's certificate with --tls-ca FILE"),
        "{refused:?}"
    );
    let refused = ran(command(&["tasks", "--tls-ca", &ca])).await;
    assert!(refused.status == 1 && refused.err.contains("--tls-cert FILE and --tls-key FILE"), "{refused:?}");
    let missing = ran(command(&["tasks", "--tls-ca", "/nowhere/ca.pem"])).await;
    assert!(missing.status == 2 && missing.err.contains("/nowhere/ca.pem cannot be read"), "{missing:?}");

    bench.export.dispatch("x".into()).await.unwrap();
    let by_options = ran(command(&["tasks", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key])).await;
    assert!(by_options.ok().contains("export"));
    let mut by_variables = command(&["tasks"]);
    by_variables.env("HEARTLINE_TLS_CA", &ca).env("HEARTLINE_TLS_CERT", &cert).env("HEARTLINE_TLS_KEY", &key);
    assert!(ran(by_variables).await.ok().contains("export"));
    let mut half = command(&["tasks"]);
    half.env("HEARTLINE_TLS_CA", &ca).env("HEARTLINE_TLS_CERT", &cert);
    let half = ran(half).await;
    assert!(half.status == 2 && half.err.contains("a certificate needs its key"), "{half:?}");
}
