package org.fermion.paimon;

import org.apache.paimon.format.FileFormat;
import org.apache.paimon.format.FileFormatFactory;

/** The file format {@code 'file.format' = 'fermion'}, which Paimon finds as a service. */
public final class FermionFormatFactory implements FileFormatFactory {
    /** The name of the format, and the suffix of its files. */
    public static final String IDENTIFIER = "fermion";

    @Override
    public String identifier() {
        return IDENTIFIER;
    }

    @Override
    public FileFormat create(FormatContext context) {
        return new FermionFormat(context.options().toMap());
    }
}
