use std::net::SocketAddr;
use std::process::{Command, Stdio};
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::SyncRunner;
use testcontainers::{GenericImage, TestcontainersError};

const REDIS: u16 = 6379;

/// A Redis server in a container, removed when dropped.
pub struct Container {
    container: Option<testcontainers::Container<GenericImage>>,
    address: SocketAddr,
}

impl Container {
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let container = self.container.take();
        // Removing it blocks on a runtime of its own, which a thread of the test's runtime must not do.
        let _ = std::thread::spawn(move || drop(container)).join();
    }
}

/// Starts a container, or `None` where no Docker daemon answers. Panics when one answers but has no Redis to offer.
pub fn start() -> Option<Container> {
    let docker = Command::new("docker").arg("version").stdin(Stdio::null()).output();
    if !docker.is_ok_and(|output| output.status.success()) {
        return None;
    }
    Some(std::thread::spawn(run).join().unwrap().unwrap())
}

fn run() -> Result<Container, TestcontainersError> {
    let container = GenericImage::new("redis", "7")
        .with_exposed_port(REDIS.tcp())
        .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
        .start()?;
    let port = container.get_host_port_ipv4(REDIS.tcp())?;
    Ok(Container { container: Some(container), address: ([127, 0, 0, 1], port).into() })
}
