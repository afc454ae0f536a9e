//! CRC16 (XMODEM), which spreads keys over the slots of a cluster, and ids over the partitions of a task.

pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    crc16_on(0, bytes)
}

/// Continues a CRC16 over more bytes.
pub(crate) fn crc16_on(crc: u16, bytes: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    bytes.iter().fold(crc, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_specification() {
        assert_eq!((crc16(b"123456789"), crc16_on(crc16(b"1234"), b"56789")), (0x31C3, 0x31C3));
    }
}
