/// Calculates the next change of the date and of the distance from UTC. Uses a function that returns that distance at a
/// second since 1970.
struct LocalTime {
    let offset: (Int64) -> Int

    /// Returns the local date, in days since 1970-01-01.
    func day(at second: Int64) -> Int {
        let local = second + Int64(offset(second))
        return Int(local >= 0 ? local / 86400 : (local - 86399) / 86400)
    }

    /// Returns the first second of another date.
    func midnight(after second: Int64) -> Int64 {
        first(after: second, by: second + 2 * 86400) { day(at: $0) != day(at: second) }
    }

    /// Returns the first second of another distance from UTC within 400 days; `nil` if there is none.
    func shift(after second: Int64) -> Int64? {
        let now = offset(second)
        // The shortest time between two shifts is about 30 days, for Ramadan in Morocco.
        for week in 0..<58 where offset(second + Int64(week + 1) * 7 * 86400) != now {
            return first(after: second + Int64(week) * 7 * 86400, by: second + Int64(week + 1) * 7 * 86400) {
                offset($0) != now
            }
        }
        return nil
    }

    private func first(after low: Int64, by high: Int64, _ isThere: (Int64) -> Bool) -> Int64 {
        var (low, high) = (low, high)
        while high - low > 1 {
            let middle = low + (high - low) / 2
            if isThere(middle) { high = middle } else { low = middle }
        }
        return high
    }
}
