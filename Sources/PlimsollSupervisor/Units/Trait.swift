// The package trait `Supervisor` enables this product. The default traits contain it.
#if !Supervisor
#error("PlimsollSupervisor needs the trait Supervisor: add traits: [\"Supervisor\"] to the dependency on plimsoll")
#endif
