// The package trait `Service` enables this product. The default traits contain it.
#if !Service
#error("PlimsollService needs the trait Service: add traits: [\"Service\"] to the dependency on plimsoll")
#endif
