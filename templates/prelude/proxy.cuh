// Makes this thread's writes to shared memory visible to bulk copies.
DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
