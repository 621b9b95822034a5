import Plimsoll
import PlimsollLinux
import Testing

@Suite struct HostTests {
    @Test func `the machine this runs on can be read, and every dead signal says why`() throws {
        let source = LinuxPressureSource()
        let reading = try source.read(at: .zero)
        #expect(reading.limit != nil)
        #expect(source.capabilities.signals.count == 10)
        for signal in source.capabilities.signals { #expect(!signal.detail.isEmpty, "\(signal.name)") }
        print(source.capabilities, reading)
    }
}
