import SwiftOperators
import SwiftParser
import SwiftSyntax

/// Finds the mutants of one file, and the text to insert for each.
///
/// Every mutant stays in the program, behind a switch that is read at run time (mutant schemata: Untch, Offutt and
/// Harrold, ISSTA 1993). One build serves all mutants. Inserted text has no newline: each line keeps the line number.
final class MutantFinder: SyntaxVisitor {
    private(set) var mutants: [Mutant] = []
    private(set) var insertions: [Insertion] = []

    private let file: String
    private let lines: [Substring]
    private let converter: SourceLocationConverter
    private let firstID: Int
    /// Lines whose mutants don't compile.
    private let excluded: [Int: Exclusion]
    /// Number of mutants so far by kind and text.
    private var found: [String: Int] = [:]

    /// Calls that end the process, or only report.
    private static let uninteresting: Set = [
        "assert", "assertionFailure", "precondition", "preconditionFailure", "fatalError",
    ]
    private static let swaps: [String: [(Mutant.Kind, String)]] = [
        "<": [(.boundary, "<="), (.comparison, ">=")], "<=": [(.boundary, "<"), (.comparison, ">")],
        ">": [(.boundary, ">="), (.comparison, "<=")], ">=": [(.boundary, ">"), (.comparison, "<")],
        "==": [(.comparison, "!=")], "!=": [(.comparison, "==")],
        "===": [(.comparison, "!==")], "!==": [(.comparison, "===")],
        "&&": [(.logic, "||")], "||": [(.logic, "&&")],
        "+": [(.arithmetic, "-")], "-": [(.arithmetic, "+")], "*": [(.arithmetic, "/")], "/": [(.arithmetic, "*")],
        "&+": [(.arithmetic, "&-")], "&-": [(.arithmetic, "&+")],
    ]
    private static let assignmentSwaps = ["+=": "-=", "-=": "+=", "&+=": "&-=", "&-=": "&+="]

    init(file: String, source: String, tree: SourceFileSyntax, firstID: Int, excluded: [Int: Exclusion]) {
        self.file = file
        self.firstID = firstID
        self.excluded = excluded
        lines = source.split(separator: "\n", omittingEmptySubsequences: false)
        converter = SourceLocationConverter(fileName: file, tree: tree)
        super.init(viewMode: .sourceAccurate)
    }

    /// Adds a mutant at `node`. Returns its identifier, or `nil` if the line is excluded.
    private func add(_ kind: Mutant.Kind, _ node: some SyntaxProtocol, _ original: String, _ replacement: String) -> Int? {
        let line = node.startLocation(converter: converter).line
        let end = node.endLocation(converter: converter).line
        guard !(line...end).contains(where: { excluded[$0]?.covers(kind) ?? false }) else { return nil }
        let text = lines[line - 1], indentation = text.utf8.prefix { $0 == UInt8(ascii: " ") }.count
        let column = node.startLocation(converter: converter).column - indentation
        let place = "\(kind) \(text.trimmed) \(column) \(original) \(replacement)"
        let mutant = Mutant(
            id: firstID + mutants.count, kind: kind, file: file, line: line, column: column, original: original,
            replacement: replacement, text: text.trimmed, repetition: found[place])
        found[place, default: 0] += 1
        mutants.append(mutant)
        return mutant.id
    }

    /// Surrounds `node` with text.
    private func wrap(_ node: some SyntaxProtocol, _ prefix: String, _ suffix: String) {
        var depth = 0
        var parent = node.parent
        while let some = parent { (depth, parent) = (depth + 1, some.parent) }
        let start = node.positionAfterSkippingLeadingTrivia.utf8Offset
        insertions.append(Insertion(offset: start, text: prefix, isSuffix: false, depth: depth))
        let end = node.endPositionBeforeTrailingTrivia.utf8Offset
        insertions.append(Insertion(offset: end, text: suffix, isSuffix: true, depth: depth))
    }

    private func replace(_ node: some SyntaxProtocol, by text: String) {
        let start = node.positionAfterSkippingLeadingTrivia.utf8Offset
        let length = node.endPositionBeforeTrailingTrivia.utf8Offset - start
        insertions.append(Insertion(offset: start, text: text, isSuffix: false, depth: .max, removed: length))
    }

    /// Returns the code of a node on one line; `nil` if the node spans several lines.
    private func code(_ node: some SyntaxProtocol) -> String? {
        let text = node.trimmedDescription
        return text.contains("\n") ? nil : text
    }

    // MARK: Expressions

    override func visit(_ node: InfixOperatorExprSyntax) -> SyntaxVisitorContinueKind {
        guard let name = node.operator.as(BinaryOperatorExprSyntax.self)?.operator.text,
            let swaps = Self.swaps[name], let left = code(node.leftOperand), let right = code(node.rightOperand)
        else { return .visitChildren }
        // A call of a generic function is fast for the type checker, which gives up on long expressions. `nil` has no
        // type without a context.
        if let function = MutantSwitch.comparisons[name], right != "nil", left != "nil" {
            let ids = swaps.compactMap { add($0.0, node, "\(left) \(name) \(right)", "\(left) \($0.1) \(right)") }
            if ids.count == swaps.count {
                wrap(node, "\(function)(" + ids.map { "\($0), " }.joined(), ")")
                replace(node.operator, by: ",")
            }
            return .visitChildren
        }
        var prefix = ""
        for (kind, other) in swaps {
            guard let id = add(kind, node, "\(left) \(name) \(right)", "\(left) \(other) \(right)") else { continue }
            prefix += "plimsoll_mutant(\(id)) ? \(left) \(other) \(right) : "
        }
        if !prefix.isEmpty { wrap(node, "(" + prefix + "(", "))") }
        return .visitChildren
    }

    override func visit(_ node: FunctionCallExprSyntax) -> SyntaxVisitorContinueKind {
        let name = node.calledExpression.trimmedDescription
        if Self.uninteresting.contains(name) { return .skipChildren }
        if name == "min" || name == "max", let text = code(node), let arguments = code(node.arguments) {
            let other = "\(name == "min" ? "max" : "min")(\(arguments))"
            if let id = add(.arithmetic, node, text, other) {
                wrap(node, "(plimsoll_mutant(\(id)) ? \(other) : ", ")")
            }
        }
        return .visitChildren
    }

    override func visit(_ node: IntegerLiteralExprSyntax) -> SyntaxVisitorContinueKind {
        let text = node.literal.text
        if let id = add(.constant, node, text, "\(text) + 1") {
            wrap(node, "(plimsoll_mutant(\(id)) ? \(text) + 1 : ", ")")
        }
        return .skipChildren
    }

    override func visit(_ node: FloatLiteralExprSyntax) -> SyntaxVisitorContinueKind {
        let text = node.literal.text
        if let id = add(.constant, node, text, "\(text) * 2") {
            wrap(node, "(plimsoll_mutant(\(id)) ? \(text) * 2 : ", ")")
        }
        return .skipChildren
    }

    override func visit(_ node: BooleanLiteralExprSyntax) -> SyntaxVisitorContinueKind {
        let text = node.literal.text, other = text == "true" ? "false" : "true"
        if let id = add(.constant, node, text, other) {
            wrap(node, "(plimsoll_mutant(\(id)) ? \(other) : ", ")")
        }
        return .skipChildren
    }

    // MARK: Conditions

    override func visit(_ node: ConditionElementSyntax) -> SyntaxVisitorContinueKind {
        // A mutant with an endless loop proves nothing. After `while true` the compiler requires no result.
        if node.parent?.parent?.is(WhileStmtSyntax.self) == true {
            return node.condition.trimmedDescription == "true" ? .skipChildren : .visitChildren
        }
        if case .expression(let condition) = node.condition { negate(condition) }
        return .visitChildren
    }

    override func visit(_ node: TernaryExprSyntax) -> SyntaxVisitorContinueKind {
        negate(node.condition)
        return .visitChildren
    }

    override func visit(_ node: WhereClauseSyntax) -> SyntaxVisitorContinueKind {
        negate(node.condition)
        return .visitChildren
    }

    private func negate(_ condition: ExprSyntax) {
        // Comparisons and logic have separate mutants.
        guard !condition.is(InfixOperatorExprSyntax.self), let text = code(condition),
            let id = add(.condition, condition, text, "!(\(text))")
        else { return }
        wrap(condition, "(plimsoll_mutant(\(id)) != (", "))")
    }

    // MARK: Statements

    override func visit(_ node: CodeBlockItemSyntax) -> SyntaxVisitorContinueKind {
        guard case .expr(let whole) = node.item, !isResult(node) else { return .visitChildren }
        var inner = whole
        while true {
            if let tried = inner.as(TryExprSyntax.self) {
                inner = tried.expression
            } else if let awaited = inner.as(AwaitExprSyntax.self) {
                inner = awaited.expression
            } else {
                break
            }
        }
        if let call = inner.as(FunctionCallExprSyntax.self) {
            guard !Self.uninteresting.contains(call.calledExpression.trimmedDescription) else { return .visitChildren }
            drop(whole)
        } else if let infix = inner.as(InfixOperatorExprSyntax.self), !isInInitializer(node) {
            if infix.operator.is(AssignmentExprSyntax.self) {
                drop(whole)
            } else if let name = infix.operator.as(BinaryOperatorExprSyntax.self)?.operator.text, name.hasSuffix("="),
                !Self.swaps.keys.contains(name)
            {
                drop(whole, swapping: name, infix)
            }
        }
        return .visitChildren
    }

    private func drop(_ statement: ExprSyntax, swapping name: String = "", _ infix: InfixOperatorExprSyntax? = nil) {
        let text = statement.trimmedDescription
        let short = text.split(separator: "\n").first.map { $0.trimmed + (text.contains("\n") ? " …" : "") } ?? ""
        var prefix = ""
        if let infix, let other = Self.assignmentSwaps[name], let left = code(infix.leftOperand),
            let right = code(infix.rightOperand), statement.is(InfixOperatorExprSyntax.self),
            let id = add(.arithmetic, statement, short, "\(left) \(other) \(right)")
        {
            prefix = "if plimsoll_mutant(\(id)) { \(left) \(other) \(right) } else "
        }
        guard let id = add(.statement, statement, short, "nothing") else {
            if !prefix.isEmpty { wrap(statement, prefix + "{ ", " }") }
            return
        }
        wrap(statement, prefix + "if !plimsoll_mutant(\(id)) { ", " }")
    }

    /// Returns true if the value of the statement may be the result of the code around it: a single statement of a
    /// closure, of a getter, of a function with a result, or of a branch whose value is such a result.
    private func isResult(_ node: CodeBlockItemSyntax) -> Bool {
        guard let list = node.parent?.as(CodeBlockItemListSyntax.self), list.count == 1, let owner = list.parent else {
            return false
        }
        if owner.is(ClosureExprSyntax.self) || owner.is(AccessorBlockSyntax.self) { return true }
        guard let body = owner.parent else { return false }
        if owner.is(SwitchCaseSyntax.self) { return isValue(body.parent) }
        if body.is(IfExprSyntax.self) { return isValue(body) }
        if let function = body.as(FunctionDeclSyntax.self) { return function.signature.returnClause != nil }
        return body.is(AccessorDeclSyntax.self) || body.is(SubscriptDeclSyntax.self)
    }

    /// Returns true if the value of a `switch` or `if` is used, or may be a result.
    private func isValue(_ branches: Syntax?) -> Bool {
        var node = branches
        // `else if`
        while let outer = node?.parent, outer.is(IfExprSyntax.self) { node = outer }
        guard let parent = node?.parent else { return false }
        guard parent.is(ExpressionStmtSyntax.self) || parent.is(CodeBlockItemSyntax.self) else { return true }
        return (parent.as(CodeBlockItemSyntax.self) ?? parent.parent?.as(CodeBlockItemSyntax.self)).map(isResult) ?? false
    }

    private func isInInitializer(_ node: some SyntaxProtocol) -> Bool {
        var parent = node.parent
        while let some = parent {
            if some.is(InitializerDeclSyntax.self) { return true }
            if some.is(FunctionDeclSyntax.self) || some.is(ClosureExprSyntax.self) { return false }
            parent = some.parent
        }
        return false
    }

    // MARK: Places without mutants

    override func visit(_ node: AttributeSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: StringLiteralExprSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: ExpressionPatternSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: EnumCaseElementSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: MacroExpansionExprSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: GenericArgumentClauseSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: SwitchCaseLabelSyntax) -> SyntaxVisitorContinueKind {
        for item in node.caseItems { if let clause = item.whereClause { walk(clause) } }
        return .skipChildren
    }
    /// Clients see default arguments of public functions, and can't see the switch.
    override func visit(_ node: FunctionParameterSyntax) -> SyntaxVisitorContinueKind { .skipChildren }

    override func visit(_ node: FunctionDeclSyntax) -> SyntaxVisitorContinueKind { kind(node.attributes, node.name.text) }
    override func visit(_ node: InitializerDeclSyntax) -> SyntaxVisitorContinueKind { kind(node.attributes) }
    override func visit(_ node: SubscriptDeclSyntax) -> SyntaxVisitorContinueKind { kind(node.attributes) }
    override func visit(_ node: DeinitializerDeclSyntax) -> SyntaxVisitorContinueKind { kind(node.attributes) }
    override func visit(_ node: AccessorDeclSyntax) -> SyntaxVisitorContinueKind { kind(node.attributes) }
    override func visit(_ node: VariableDeclSyntax) -> SyntaxVisitorContinueKind {
        // Texts for people have no test for each word.
        kind(node.attributes, node.bindings.first?.pattern.trimmedDescription ?? "")
    }

    private func kind(_ attributes: AttributeListSyntax, _ name: String = "") -> SyntaxVisitorContinueKind {
        let isInlinable = attributes.contains {
            ["@inlinable", "@_transparent", "@_alwaysEmitIntoClient"].contains($0.trimmedDescription)
        }
        return isInlinable || ["description", "debugDescription", "hash"].contains(name) ? .skipChildren : .visitChildren
    }
}

/// Text to be inserted into a file.
struct Insertion {
    /// Bytes from the begin of the file.
    var offset: Int
    var text: String
    /// True at the end of a node: the end of one node comes before the begin of the next.
    var isSuffix: Bool
    /// Number of nodes around the node. An outer node begins before an inner one, and ends after.
    var depth: Int
    /// Bytes of the file that the text replaces.
    var removed = 0
}

extension StringProtocol {
    var trimmed: String {
        var text = Substring(self)
        while text.first?.isWhitespace == true { text.removeFirst() }
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }
}
