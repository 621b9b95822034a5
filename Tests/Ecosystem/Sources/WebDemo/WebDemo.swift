@main
struct WebDemo {
    static func main() {}
}
