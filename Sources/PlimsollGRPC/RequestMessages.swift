#if GRPC
public import GRPCCore

extension RPCAsyncSequence where Failure == any Error {
    /// Collects the messages of a request stream, up to a number of bytes.
    ///
    ///     let parts = try await request.messages.collect(upTo: manager.collectLimit()) { $0.count }
    ///
    /// A handler that works message by message needs no bound: gRPC's flow control holds the client back.
    ///
    /// - Parameters:
    ///   - byteLimit: most bytes of all messages. The place of each message in the array counts as well, so that many
    ///     empty messages have a bound too.
    ///   - byteCount: returns the bytes of a message.
    /// - Returns: The messages in the order of arrival.
    /// - Throws: An `RPCError` with the status `resourceExhausted` for a longer stream; errors of the stream and of
    ///   `byteCount`.
    public func collect(upTo byteLimit: Int, byteCount: (Element) throws -> Int) async throws -> [Element] {
        var messages: [Element] = [], left = byteLimit
        for try await message in self {
            let cost = try byteCount(message).addingReportingOverflow(MemoryLayout<Element>.stride)
            guard !cost.overflow, cost.partialValue <= left else {
                throw RPCError(
                    code: .resourceExhausted,
                    message: "cannot collect the request stream because it has more than \(byteLimit) bytes; send less")
            }
            left -= cost.partialValue
            messages.append(message)
        }
        return messages
    }
}

/// The messages of a request stream, of which only so many may arrive.
struct BoundedMessages<Element: Sendable>: AsyncSequence, Sendable {
    let base: RPCAsyncSequence<Element, any Error>
    let most: Int
    let method: MethodDescriptor

    func makeAsyncIterator() -> Iterator {
        Iterator(base: base.makeAsyncIterator(), left: most, most: most, method: method)
    }

    struct Iterator: AsyncIteratorProtocol {
        var base: RPCAsyncSequence<Element, any Error>.AsyncIterator
        var left: Int
        let most: Int
        let method: MethodDescriptor

        mutating func next() async throws -> Element? { try await next(isolation: nil) }

        mutating func next(isolation actor: isolated (any Actor)?) async throws(any Error) -> Element? {
            guard let message = try await base.next(isolation: actor) else { return nil }
            guard left > 0 else {
                throw RPCError(
                    code: .resourceExhausted,
                    message: "cannot take the request stream of \(method) because it has more than \(most) messages; "
                        + "send fewer in one call")
            }
            left -= 1
            return message
        }
    }
}
#endif
