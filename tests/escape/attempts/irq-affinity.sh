# class: proc
# promise: interrupts are not steered
echo 1 > /proc/irq/default_smp_affinity
