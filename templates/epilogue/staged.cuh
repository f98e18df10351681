// ---- staging of the epilogue's operands: which ones, and their way between global and shared memory ----
// The plan has placed the matrices by the same numbers.
{% for load in staged_loads %}static_assert(
    {% if load.packed %}BitChunk<{{ load.along_strip }}>{% else %}Chunk64<sizeof({{ load.dtype }}), {{ load.along_strip }}>
    {% endif %}::BYTES == {{ load.bytes }}, "{{ load.node }}");
{% endfor %}{% for store in staged_stores %}static_assert(
    Chunk64<sizeof({{ store.dtype }}), {{ store.along_strip }}>::BYTES == {{ store.bytes }}, "{{ store.node }}");
{% endfor %}{% for store in staged_bits %}static_assert(
    BitTile<{{ store.along_strip }}>::BYTES == {{ store.bytes }}, "{{ store.node }}");
{% endfor %}
// Fills the tile's slices of all vectors; called by one warp.
DEVICE void fill_vectors(const Params& p, const TileValues& t, u32 to, const TileOrigin& tile, int lane) {
{% for vector in staged_vectors %}{% if vector.default %}    if ({{ vector.given }} == nullptr)
        fill_vector<{{ vector.extent }}>(to + {{ vector.staged_at }},
            Narrow<{% if vector.packed %}b8{% else %}{{ vector.dtype }}{% endif %}>::of({{ vector.default }}), lane);
    else
{% endif %}{% if vector.packed %}    for (int i = lane; i < {{ vector.extent }}; i += 32) { // {{ vector.node }}
        const int at = tile.{{ vector.axis }} + i;
        shared_at<b8>(to + {{ vector.staged_at }} + i) =
            b8{u8(at < p.{{ vector.limit }} && widen(bit_at({{ vector.base }}, at)))};
    }
{% elif residues and vector.axis == "row" %}    copy_vector_of_rows<{{ vector.extent }}>(
        p, to + {{ vector.staged_at }}, {{ vector.base }}, tile.row, lane); // {{ vector.node }}
{% else %}    copy_vector<{{ vector.extent }}>(
        to + {{ vector.staged_at }}, {{ vector.base }}, tile.{{ vector.axis }}, p.{{ vector.limit }}, lane); // {{ vector.node }}
{% endif %}{% endfor %}}

// Fills a chunk of every matrix that is read. Whole warps call this, and each arrives at the barrier once; or a single thread
// does.{% if residues %} Here every thread arrives, behind its copies.{% endif %}
template <int THREADS_THERE>
DEVICE void fill_chunk(const Params& p, const TileValues& t, {# -#}
                       {% if residues %}const TileClass& of, {% endif %}u32 to, u32 barrier, {# -#}
                       int row, int column, int thread) {
    if (thread == 0) {
{% if residues %}        [[maybe_unused]] const Window at = of.place(p, row);
{% endif %}        constexpr u32 MAPPED_BYTES = 0{% for load in staged_loads %}{% if load.map and not load.default %}
            + Chunk64<sizeof({{ load.dtype }}), {{ load.along_strip }}>::BYTES{% endif %}{% endfor %};
        if (MAPPED_BYTES > 0) mbarrier_expect_tx(barrier, MAPPED_BYTES);
{% for load in staged_loads %}{% if load.map %}        {% if load.default %}if ({{ load.given }} != nullptr)
        {% endif %}{ // {{ load.node }}
            using Place = Chunk64<sizeof({{ load.dtype }}), {{ load.along_strip }}>;
{% if load.default %}            mbarrier_expect_tx(barrier, Place::BYTES);
{% endif %}            static_assert(Place::PANEL_ELEMENTS == {{ load.panel.box_inner }}
                          && Place::LINES == {{ load.panel.box_outer }}
                          && Place::SWIZZLE == {{ load.panel.swizzle }}, "as the map has it");
#pragma unroll
            for (int i = 0; i < Place::PANELS; ++i)
                {% if residues %}tma_load_patches(
                    shared_address(shared_memory) + to + {{ load.staged_at }} + i * Place::PANEL, p.{{ load.map }},
                    p.matrix_policy, barrier, of.first(p, {{ load.ld }}) + column + i * Place::PANEL_ELEMENTS, at.x, at.y,
                    column < p.n ? at.image : p.images, 0, 0);
                {% else %}tma_load(shared_address(shared_memory) + to + {{ load.staged_at }} + i * Place::PANEL, p.{{ load.map }},
                         p.matrix_policy, barrier,
                         {% if load.along_strip %}column + i * Place::PANEL_ELEMENTS, row
                         {% else %}row + i * Place::PANEL_ELEMENTS, column{% endif %}, t.batch);
{% endif %}        }
{% endif %}{% endfor %}    }
{% if residues %}    constexpr int OWN = THREADS_THERE < 64 ? 1 : 64 / (THREADS_THERE / 32);   // rows of a warp
    [[maybe_unused]] const int own_pixel = of.pixel(p, of.place(p, row + thread / 32 * OWN + thread % OWN));
{% endif %}{# -#}
{% for load in staged_loads %}{% if load.default and (load.packed or not load.map) %}    if ({{ load.given }} != nullptr)
{% endif %}{% if load.packed %}    copy_bits_in<THREADS_THERE, {{ load.along_strip }}>(
        to + {{ load.staged_at }}, {{ load.base }}, {{ load.ld }}, row, column, p.m, p.n, thread,
        {{ load.wide }} != 0); // {{ load.node }}
{% elif residues and not load.map %}    copy_rows<THREADS_THERE, true, {{ load.along_strip }}>(
        p, to + {{ load.staged_at }}, const_cast<{{ load.dtype }}*>({{ load.base }}), {{ load.ld }}, own_pixel, {# -#}
        column, thread); // {{ load.node }}
{% elif not load.map %}    copy_in<THREADS_THERE, {{ load.along_strip }}>(
        to + {{ load.staged_at }}, {{ load.base }}, {{ load.ld }}, row, column, p.m, p.n, thread); // {{ load.node }}
{% endif %}{% endfor %}{% if residues %}    if constexpr (THREADS_THERE > 1) {
        __threadfence_block();   // elements that were not copied by `cp.async`
        mbarrier_arrive_behind_copies(barrier);
    } else {
        mbarrier_arrive(barrier);
    }
{% else %}    if (THREADS_THERE > 1) __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(barrier);
{% endif %}}

{% if direct_store %}// A lane's share of a tile. For every matrix that is written: where the lane's first piece lies in a chunk,
// where it goes, and how many rows and columns of the problem begin there.
struct Shares {
{% for store in staged_stores %}    u32 from{{ loop.index0 }};
    {{ store.dtype }}* to{{ loop.index0 }};
    int rows{{ loop.index0 }}, columns{{ loop.index0 }};
{% endfor %}};
DEVICE Shares shares_of(const Params& p, const TileValues& t, int row, int column, int first_row, int lane) {
    Shares s;
{% for store in staged_stores %}    { // {{ store.node }}
        using Own = Pieces<{{ store.dtype }}>;
        const int own_row = row + first_row + Own::row(lane), own_column = column + Own::column(lane);
        s.from{{ loop.index0 }} = {{ store.staged_at }} + Own::first(first_row, lane);
        s.to{{ loop.index0 }} = {{ store.base }} + own_row * {{ store.ld }} + own_column;
        s.rows{{ loop.index0 }} = p.m - own_row;
        s.columns{{ loop.index0 }} = p.n - own_column;
    }
{% endfor %}    return s;
}
// Stores a warp's part of a chunk. The chunk begins at this row and column of the tile, and the warp has written its part.
DEVICE void move_pieces(const Params& p, const Shares& s, u32 chunk, int row, int column, int lane) {
{% for store in staged_stores %}    Pieces<{{ store.dtype }}>::move(
        chunk + s.from{{ loop.index0 }}, s.to{{ loop.index0 }} + (row * {{ store.ld }} + column), {{ store.ld }},
        s.rows{{ loop.index0 }} - row, s.columns{{ loop.index0 }} > column, lane, p.matrix_policy); // {{ store.node }}
{% endfor %}}
{% else %}// Stores the rows of a chunk of every matrix from `first` on that leave together. The threads that have filled them
// call this, and one of them `sends`. If the problem's lines end inside a TMA unit (`TMA_UNIT` in `plan`), the chunks at
// the edge are stored element by element.
DEVICE void drain_chunk(const Params& p, const TileValues& t, u32 from, int row, int column, int first, bool sends, int thread
                        {% if residues %}, const TileClass& of, const Window& at, int own_pixel{% endif %}) {
{% for store in staged_stores %}    { // {{ store.node }}
{% if store.map %}        using Place = Chunk64<sizeof({{ store.dtype }}), {{ store.along_strip }}>;
        static_assert(Place::PANEL_ELEMENTS == {{ store.panel.box_inner }} && Place::SWIZZLE == {{ store.panel.swizzle }},
                      "as the map has it");
{% if not store.whole %}        if (p.{{ store.map }}_used
            && {% if store.along_strip %}column + CHUNK <= p.n{% else %}row + 64 <= p.m{% endif %})
{% endif %}#pragma unroll
        for (int i = 0; i < Place::PANELS; ++i)
            {% if residues %}tma_store_patches_if(
                sends && column < p.n, p.{{ store.map }}, p.matrix_policy,
                shared_address(shared_memory) + from + {{ store.staged_at }} + i * Place::PANEL + first * Place::PITCH,
                of.first(p, {{ store.ld }}) + column + i * Place::PANEL_ELEMENTS, at.x, at.y, at.image);
            {% else %}tma_store_if(sends, p.{{ store.map }}, p.matrix_policy,
                         shared_address(shared_memory) + from + {{ store.staged_at }} + i * Place::PANEL + first * Place::PITCH,
                         {% if store.along_strip %}column + i * Place::PANEL_ELEMENTS, row + first
                         {% else %}row + i * Place::PANEL_ELEMENTS, column{% endif %}, t.batch);
            {% endif -%}
{% endif %}{% if not store.whole %}        {% if store.map %}else
            {% endif %}{% if residues %}copy_rows<128, false, {{ store.along_strip }}>(
                p, from + {{ store.staged_at }}, {{ store.base }}, {{ store.ld }}, own_pixel, column, thread);
{% else %}copy_out<128, {{ store.along_strip }}>(
                from + {{ store.staged_at }}, {{ store.base }}, {{ store.ld }}, row, column, p.m, p.n, thread);
{% endif %}{% endif %}    }
{% endfor %}}
{% endif -%}
{% if staged_bits %}
// Stores a consumer's part of every mask that is written, when the tile is done.
DEVICE void drain_bits(const Params& p, const TileValues& t, u32 from, int row, int column, u32 group, int thread) {
{% for store in staged_bits %}    copy_bits_out<{{ store.along_strip }}>(
        from + {{ store.staged_at }}, {{ store.base }}, {{ store.ld }}, row, column,
        p.m, p.n, group, thread, {{ store.wide }} != 0); // {{ store.node }}
{% endfor %}}
{% endif -%}
