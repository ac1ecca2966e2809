# Variant values ⇄ columns of some of their paths, and the rest.

cdef extern from "variant_paths.h":
    enum:
        FV_KINDS
        FV_WHOLE
        FV_SHAPES
        FV_MEMORY

    ctypedef struct fv_bytes:
        const uint8_t* data
        int64_t size

    ctypedef struct fv_names:
        pass

    ctypedef struct fv_buffer:
        uint8_t* data
        int64_t size
        int64_t room

    ctypedef struct fv_tree:
        int32_t* parents
        int64_t* ends
        uint8_t* text
        int64_t count, room, text_room
        const int32_t* columns
        const uint8_t* kinds
        uint8_t* inner

    ctypedef struct fv_context:
        fv_tree* tree
        fv_names names
        fv_buffer out, items, codes, rows, words, ends, text, sorted
        int64_t most, budget, row, used
        int64_t* last_row
        uint8_t* incomplete
        uint32_t shapes_mask
        int64_t nodes
        int32_t* first
        int32_t* next
        int32_t* known_ids
        uint8_t* widths
        int64_t* word_of
        int64_t* touched
        const int64_t* text_ends
        const uint8_t* texts

    int fv_read_names(fv_bytes, fv_names*) noexcept nogil
    int fv_begin(fv_context*, fv_bytes) noexcept nogil
    int fv_tree_init(fv_tree*) noexcept nogil
    void fv_tree_free(fv_tree*) noexcept nogil
    int64_t fv_size(const uint8_t*, int64_t) noexcept nogil
    int64_t fv_ranks(uint8_t*, int64_t, int, int, fv_buffer*) noexcept nogil
    int fv_discover(fv_tree*, const fv_names*, int32_t, fv_bytes, uint32_t*, int, int64_t*) noexcept nogil
    int fv_split(fv_context*, int32_t, fv_bytes, int*) noexcept nogil
    int fv_copy(fv_context*, fv_bytes) noexcept nogil
    int fv_assemble(fv_context*, int32_t, fv_bytes) noexcept nogil
    void fv_hang(fv_context*, int32_t, int64_t) noexcept nogil


cdef int _check_ends(const int64_t[::1] ends, int64_t count, int64_t size, str what) except -1:
    """Ascending offsets of ``count`` values within ``size`` bytes."""
    cdef Py_ssize_t i
    _same_length(ends.shape[0], count + 1, what)
    for i in range(count):
        if ends[i] < 0 or ends[i] > ends[i + 1]:
            raise ValueError(f"{what}: {ends[i]} at {i} is out of order")
    if ends[count] > size or ends[0] < 0:
        raise ValueError(f"{what}: {ends[count]} lies outside of {size} bytes")
    return 0


cdef class _Variants:
    """Values with their metadata, checked."""

    cdef const uint8_t[::1] metas, values
    cdef const int64_t[::1] meta_ends, value_ends
    cdef int64_t count

    def __init__(self, metas, meta_ends, values, value_ends):
        self.metas, self.values = _input(metas), _input(values)
        self.meta_ends, self.value_ends = _input(meta_ends), _input(value_ends)
        self.count = self.value_ends.shape[0] - 1
        _check_ends(self.meta_ends, self.count, self.metas.shape[0], "meta_ends")
        _check_ends(self.value_ends, self.count, self.values.shape[0], "value_ends")

    cdef inline fv_bytes meta(self, int64_t row) noexcept nogil:
        cdef fv_bytes found
        found.size = self.meta_ends[row + 1] - self.meta_ends[row]
        found.data = &self.metas[self.meta_ends[row]] if found.size else NULL
        return found

    cdef inline fv_bytes value(self, int64_t row) noexcept nogil:
        cdef fv_bytes found
        found.size = self.value_ends[row + 1] - self.value_ends[row]
        found.data = &self.values[self.value_ends[row]] if found.size else NULL
        return found


cdef int _check_parents(const int32_t[::1] parents, const int64_t[::1] ends, const uint8_t[::1] text) except -1:
    cdef Py_ssize_t i
    _check_ends(ends, parents.shape[0], text.shape[0], "ends")
    for i in range(1, parents.shape[0]):
        if parents[i] < 0 or parents[i] >= i:
            raise ValueError(f"parents: {parents[i]} at {i} does not come before it")
    return 0


def variant_paths(metas, meta_ends, values, value_ends, rows, parents, ends, text, counts):
    """Find the paths of some values, and how many of them have each type."""
    cdef _Variants source = _Variants(metas, meta_ends, values, value_ends)
    cdef const int64_t[::1] wanted = _input(rows)
    cdef int32_t[::1] parent_of = _output(parents)
    cdef int64_t[::1] end_of = _output(ends)
    cdef uint8_t[::1] names_text = _output(text)
    cdef uint32_t[::1] found = _output(counts)
    cdef fv_tree tree
    cdef fv_names names
    cdef fv_bytes value
    cdef int64_t i, row, budget, wrong = -1
    memset(&tree, 0, sizeof(tree))
    _same_length(end_of.shape[0], parent_of.shape[0] + 1, "ends")
    _same_length(found.shape[0], parent_of.shape[0] * FV_KINDS, "counts")
    if not parent_of.shape[0] or not names_text.shape[0]:
        raise ValueError("no room for a path")
    for i in range(wanted.shape[0]):
        if not 0 <= wanted[i] < source.count:
            raise ValueError(f"row {wanted[i]} of {source.count}")
    tree.parents, tree.ends, tree.text = &parent_of[0], &end_of[0], &names_text[0]
    tree.count, tree.room, tree.text_room = 1, parent_of.shape[0], names_text.shape[0]
    tree.parents[0] = -1
    tree.ends[0] = tree.ends[1] = 0
    if fv_tree_init(&tree):
        fv_tree_free(&tree)
        raise MemoryError("no memory for paths")
    with nogil:
        for i in range(wanted.shape[0]):
            row = wanted[i]
            value = source.value(row)
            budget = value.size
            if value.size and (
                fv_size(value.data, value.size) != value.size
                or fv_read_names(source.meta(row), &names)
                or fv_discover(&tree, &names, 0, value, &found[0], 0, &budget)
            ):
                wrong = row
                break
    fv_tree_free(&tree)
    if wrong >= 0:
        raise ValueError(f"row {wrong}: bytes that are no Variant value")
    return tree.count


cdef class _Owner:
    """Memory that an array lies in."""

    cdef void* data

    def __dealloc__(self):
        free(self.data)


cdef cnp.ndarray _array_of(fv_buffer* buffer, dtype):
    """What was written to a buffer, which is empty then."""
    cdef _Owner owner
    cdef cnp.ndarray result
    cdef cnp.npy_intp size = buffer.size
    cdef void* data
    if not size:
        return np.empty(0, dtype)
    owner = _Owner.__new__(_Owner)
    data = realloc(buffer.data, size)
    owner.data = data if data else buffer.data
    buffer.data, buffer.size, buffer.room = NULL, 0, 0
    result = cnp.PyArray_SimpleNewFromData(1, &size, cnp.NPY_UINT8, owner.data)
    cnp.set_array_base(result, owner)
    return result.view(dtype)


cdef void _free_context(fv_context* context) noexcept:
    free(context.out.data)
    free(context.items.data)
    free(context.codes.data)
    free(context.rows.data)
    free(context.words.data)
    free(context.ends.data)
    free(context.text.data)
    free(context.sorted.data)
    fv_tree_free(context.tree)


def split_variants(
    metas, meta_ends, values, value_ends, parents, ends, text, columns, kinds, incomplete
):
    """Take the values of some paths out of Variant values."""
    cdef _Variants source = _Variants(metas, meta_ends, values, value_ends)
    cdef const int32_t[::1] parent_of = _input(parents), column_of = _input(columns)
    cdef const int64_t[::1] end_of = _input(ends)
    cdef const uint8_t[::1] names_text = _input(text), kind_of = _input(kinds)
    cdef uint8_t[::1] left = _output(incomplete)
    cdef int64_t[::1] last_row = np.full(max(kind_of.shape[0], 1), -1, np.int64)
    cdef int64_t[::1] out_ends = np.zeros(source.count + 1, np.int64)
    cdef fv_tree tree
    cdef fv_context context
    cdef fv_bytes value
    cdef int64_t row
    cdef int wrong = 0, changed
    _check_parents(parent_of, end_of, names_text)
    _check_columns(column_of, kind_of, parent_of.shape[0], whole=True)
    _same_length(left.shape[0], kind_of.shape[0], "incomplete")
    memset(&tree, 0, sizeof(tree))
    memset(&context, 0, sizeof(context))
    tree.parents, tree.ends = <int32_t*>&parent_of[0], <int64_t*>&end_of[0]
    tree.text = <uint8_t*>&names_text[0] if names_text.shape[0] else NULL
    tree.count = tree.room = parent_of.shape[0]
    tree.columns, tree.kinds = &column_of[0], &kind_of[0] if kind_of.shape[0] else NULL
    context.tree, context.last_row = &tree, &last_row[0]
    context.shapes_mask = FV_SHAPES - 1
    context.incomplete = &left[0] if left.shape[0] else NULL
    with nogil:
        wrong = fv_tree_init(&tree)
        for row in range(source.count):
            if wrong:
                break
            value = source.value(row)
            if value.size:
                context.most = context.budget = value.size
                context.row = row
                wrong = fv_size(value.data, value.size) != value.size
                if not wrong and value.data[0] & 3 == 2:
                    wrong = fv_begin(&context, source.meta(row))
                    wrong = wrong or fv_split(&context, 0, value, &changed)
                elif not wrong:
                    wrong = fv_copy(&context, value)
            out_ends[row + 1] = context.out.size
    try:
        if wrong == FV_MEMORY:
            raise MemoryError("no memory for Variant values")
        if wrong:
            raise ValueError(f"row {context.row}: bytes that are no Variant value")
        return (
            _array_of(&context.out, np.uint8),
            np.asarray(out_ends),
            _array_of(&context.codes, np.uint32),
            _array_of(&context.rows, np.int64),
            _array_of(&context.words, np.int64),
            _array_of(&context.text, np.uint8),
        )
    finally:
        _free_context(&context)


def variant_ranks(values, value_ends, bint back):
    """Put ranks in place of the offsets in objects and arrays, or offsets of ranks; in place."""
    cdef uint8_t[::1] data = _output(values)
    cdef const int64_t[::1] ends = _input(value_ends)
    cdef int64_t row, size, found = 0
    cdef fv_buffer work
    memset(&work, 0, sizeof(work))
    _check_ends(ends, ends.shape[0] - 1, data.shape[0], "value_ends")
    with nogil:
        for row in range(ends.shape[0] - 1):
            size = ends[row + 1] - ends[row]
            found = fv_ranks(&data[ends[row]], size, back, 0, &work) if size else 0
            if found != size:
                break
            found = 0
    free(work.data)
    if found == FV_MEMORY:
        raise MemoryError("no memory for Variant values")
    if found:
        raise ValueError(f"row {row}: bytes that are no Variant value")


cdef int _check_columns(
    const int32_t[::1] columns, const uint8_t[::1] kinds, int64_t nodes, bint whole=False
) except -1:
    """Each column belongs to one node, which is not the first, and has a known type."""
    cdef Py_ssize_t i
    cdef uint8_t[::1] seen = np.zeros(kinds.shape[0] + 1, np.uint8)
    _same_length(columns.shape[0], nodes, "columns")
    for i in range(nodes):
        if columns[i] < -1 or columns[i] >= kinds.shape[0] or (columns[i] >= 0 and (seen[columns[i]] or not i)):
            raise ValueError(f"columns: {columns[i]} at {i}")
        if columns[i] >= 0:
            seen[columns[i]] = 1
    for i in range(kinds.shape[0]):
        if not seen[i] or not (0 < kinds[i] < FV_KINDS or whole and kinds[i] == FV_WHOLE):
            raise ValueError(f"column {i} has no node, or type {kinds[i]}")
    return 0


def assemble_variants(
    metas, meta_ends, values, value_ends, parents, ends, text, columns, kinds,
    codes, rows, words, text_ends, texts,
):
    """Put the values of paths back into the rest of Variant values."""
    cdef _Variants source = _Variants(metas, meta_ends, values, value_ends)
    cdef const int32_t[::1] parent_of = _input(parents), column_of = _input(columns)
    cdef const int64_t[::1] end_of = _input(ends), row_of = _input(rows), word_in = _input(words)
    cdef const int64_t[::1] text_end_of = _input(text_ends)
    cdef const uint8_t[::1] names_text = _input(text), kind_of = _input(kinds), all_texts = _input(texts)
    cdef const uint32_t[::1] code_of = _input(codes)
    cdef int64_t entries = code_of.shape[0], nodes = parent_of.shape[0], i, row, at, code
    cdef int64_t[::1] starts = np.zeros(source.count + 2, np.int64), order = np.empty(entries + 1, np.int64)
    cdef int64_t[::1] out_ends = np.zeros(source.count + 1, np.int64)
    cdef int64_t[::1] word_of = np.zeros(nodes + 1, np.int64), touched = np.full(nodes + 1, -1, np.int64)
    cdef int32_t[::1] first = np.full(nodes + 1, -1, np.int32), following = np.full(nodes + 1, -1, np.int32)
    cdef int32_t[::1] known_ids
    cdef uint8_t[::1] widths = np.ones(nodes + 1, np.uint8)
    cdef int32_t[::1] node_of = np.zeros(kind_of.shape[0] + 1, np.int32)
    cdef fv_tree tree
    cdef fv_context context
    cdef fv_bytes value
    cdef int wrong = 0
    _check_parents(parent_of, end_of, names_text)
    _check_columns(column_of, kind_of, nodes)
    _same_length(row_of.shape[0], entries, "rows")
    _same_length(word_in.shape[0], entries, "words")
    _check_codes(code_of, kind_of.shape[0])
    _check_ends(text_end_of, text_end_of.shape[0] - 1, all_texts.shape[0], "text_ends")
    for i in range(nodes):
        if column_of[i] >= 0:
            node_of[column_of[i]] = i
    for i in range(entries):
        row, code = row_of[i], code_of[i]
        if not 0 <= row < source.count:
            raise ValueError(f"row {row} of {source.count}")
        if kind_of[code] == 4 and not 0 <= word_in[i] < text_end_of.shape[0] - 1:
            raise ValueError(f"text {word_in[i]} of {text_end_of.shape[0] - 1}")
        starts[row + 2] += 1
    for row in range(source.count):
        starts[row + 2] += starts[row + 1]
    for i in range(entries):
        order[starts[row_of[i] + 1]] = i
        starts[row_of[i] + 1] += 1
    memset(&tree, 0, sizeof(tree))
    memset(&context, 0, sizeof(context))
    tree.parents, tree.ends = <int32_t*>&parent_of[0], <int64_t*>&end_of[0]
    tree.text = <uint8_t*>&names_text[0] if names_text.shape[0] else NULL
    tree.count = tree.room = nodes
    tree.columns, tree.kinds = &column_of[0], &kind_of[0] if kind_of.shape[0] else NULL
    context.tree, context.first, context.next = &tree, &first[0], &following[0]
    context.shapes_mask = FV_SHAPES - 1 if nodes <= 4096 else 0
    context.nodes, known_ids = nodes, np.empty(nodes * (context.shapes_mask + 1), np.int32)
    context.known_ids, context.widths = &known_ids[0], &widths[0]
    context.word_of, context.touched = &word_of[0], &touched[0]
    context.text_ends = &text_end_of[0]
    context.texts = &all_texts[0] if all_texts.shape[0] else NULL
    with nogil:
        wrong = fv_tree_init(&tree)
        for row in range(source.count):
            if wrong:
                break
            value = source.value(row)
            context.row, context.used = row, 0
            context.most = context.budget = value.size
            for at in range(starts[row], starts[row + 1]):
                i = order[at]
                fv_hang(&context, node_of[code_of[i]], word_in[i])
            if value.size:
                wrong = fv_size(value.data, value.size) != value.size
                if not wrong and starts[row + 1] > starts[row] and value.data[0] & 3 == 2:
                    wrong = fv_begin(&context, source.meta(row))
                    wrong = wrong or fv_assemble(&context, 0, value)
                elif not wrong:
                    wrong = fv_copy(&context, value)
            if not wrong and context.used != starts[row + 1] - starts[row]:
                wrong = -1
            out_ends[row + 1] = context.out.size
    try:
        if wrong == FV_MEMORY:
            raise MemoryError("no memory for Variant values")
        if wrong:
            raise ValueError(f"row {context.row}: a value of a path that does not fit the rest")
        return _array_of(&context.out, np.uint8), np.asarray(out_ends)
    finally:
        _free_context(&context)
